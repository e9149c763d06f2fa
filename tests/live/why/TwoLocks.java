// SPDX-License-Identifier: MIT
// Two threads, `one` and `two`, that each hold what the other wants: a monitor or a ReentrantLock.
// Or `one` wants to write what `two` reads for ever, which names no owner. Or `one` waits for a
// pool whose only thread reads stdin, or waits for a task that it would have to run itself. Or
// `one` asks the server at the port that the second argument names, or has ended while `two` makes
// garbage.

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

public class TwoLocks {
    static void hold(Object mine, Object other) {
        synchronized (mine) {
            pause();
            synchronized (other) {
                System.out.println("not reached");
            }
        }
    }

    static void lock(ReentrantLock mine, ReentrantLock other) {
        mine.lock();
        pause();
        other.lock();
        System.out.println("not reached");
    }

    static void write(ReentrantReadWriteLock table) {
        pause();
        table.writeLock().lock();
        System.out.println("not reached");
    }

    static void read(ReentrantReadWriteLock table) {
        table.readLock().lock();
        pause(100_000_000);
    }

    static void await(ExecutorService pool) {
        try {
            pool.submit(() -> System.in.read());
            pool.shutdown();
            pool.awaitTermination(1, TimeUnit.HOURS);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    // The heap is nearly full, so that the collector works without end.
    static void fill() {
        Runtime runtime = Runtime.getRuntime();
        List<byte[]> kept = new ArrayList<>();
        while (runtime.maxMemory() - runtime.totalMemory() + runtime.freeMemory() > 9 << 20) {
            kept.add(new byte[1024]);
        }
        for (int at = 0;; at = (at + 1) % kept.size()) {
            kept.set(at, new byte[1024]);
        }
    }

    static int nested(ExecutorService pool) {
        try {
            return pool.submit(() -> pool.submit(() -> 1).get()).get();
        } catch (InterruptedException | ExecutionException e) {
            throw new IllegalStateException(e);
        }
    }

    static void ask(String port) {
        HttpRequest request =
                HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port)).build();
        try {
            HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        } catch (InterruptedException | IOException e) {
            throw new IllegalStateException(e);
        }
    }

    static void pause() {
        pause(500);
    }

    static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] args) throws InterruptedException {
        Object a = new Object();
        Object b = new Object();
        ReentrantLock c = new ReentrantLock();
        ReentrantLock d = new ReentrantLock(true);
        ReentrantReadWriteLock e = new ReentrantReadWriteLock();
        Runnable[] both = switch (args[0]) {
            case "monitor" -> new Runnable[] {() -> hold(a, b), () -> hold(b, a)};
            case "lock" -> new Runnable[] {() -> lock(c, d), () -> lock(d, c)};
            case "pool" -> new Runnable[] {() -> await(Executors.newFixedThreadPool(1)), () -> {}};
            case "nested" ->
                new Runnable[] {() -> nested(Executors.newFixedThreadPool(1)), () -> {}};
            case "garbage" -> new Runnable[] {() -> {}, () -> fill()};
            case "http" -> new Runnable[] {() -> ask(args[1]), () -> {}};
            default -> new Runnable[] {() -> write(e), () -> read(e)};
        };
        Thread one = new Thread(both[0], "one");
        Thread two = new Thread(both[1], "two");
        one.start();
        two.start();
        System.out.println("started");
        one.join();
        two.join();
    }
}
