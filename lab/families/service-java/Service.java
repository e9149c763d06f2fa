// SPDX-License-Identifier: MIT

import java.io.IOException;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Exchanger;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Phaser;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** Hangs of small services: {@code Service HANG} says that it begins, and stands a moment later. */
public class Service {
    /** What a client of the service hears of. */
    interface Listener {
        void loaded(String text) throws Exception;
    }

    /** It only counts. */
    static final class Counting implements Listener {
        int count;

        @Override
        public void loaded(String text) {
            count++;
        }
    }

    /** It completes what somebody waits for. */
    static final class Completing implements Listener {
        final CompletableFuture<String> result = new CompletableFuture<>();

        @Override
        public void loaded(String text) {
            result.complete(text);
        }
    }

    static String read() {
        try {
            StringBuilder line = new StringBuilder();
            for (int one = System.in.read(); one > '\n'; one = System.in.read()) {
                line.append((char) one);
            }
            return line.toString();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Three tasks are to count down; the last one reads. */
    static void latch() throws Exception {
        CountDownLatch ready = new CountDownLatch(3);
        ExecutorService pool = Executors.newFixedThreadPool(4);
        for (int n = 0; n < 3; n++) {
            int part = n;
            pool.submit(() -> load(part, ready));
        }
        ready.await();
        System.out.println("loaded");
    }

    static void load(int part, CountDownLatch ready) {
        if (part == 2) {
            read();
        }
        ready.countDown();
    }

    /** A task's exception ends it before it counts down. */
    static void short_() throws Exception {
        CountDownLatch ready = new CountDownLatch(3);
        ExecutorService pool = Executors.newFixedThreadPool(4);
        for (int n = 0; n < 3; n++) {
            int part = n;
            pool.submit(() -> parse(part, ready));
        }
        ready.await();
        System.out.println("parsed");
    }

    static void parse(int part, CountDownLatch ready) {
        if (part == 1) {
            throw new IllegalArgumentException("part " + part);
        }
        ready.countDown();
    }

    /** Who has the permit waits for something that only comes with the permit. */
    static void permits() throws Exception {
        Semaphore permits = new Semaphore(1);
        BlockingQueue<String> rows = new ArrayBlockingQueue<>(4);
        new Thread(() -> drain(permits, rows), "drain").start();
        Thread.sleep(300);
        fill(permits, rows);
    }

    static void drain(Semaphore permits, BlockingQueue<String> rows) {
        try {
            permits.acquire();
            System.out.println(rows.take());
            permits.release();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    static void fill(Semaphore permits, BlockingQueue<String> rows) throws InterruptedException {
        permits.acquire();
        rows.put("row");
        permits.release();
    }

    /** The future is completed by a listener that the loader calls through an interface. */
    static void callback() throws Exception {
        Completing wanted = new Completing();
        List<Listener> listeners = new ArrayList<>(List.of(new Counting(), wanted));
        Thread loader = new Thread(() -> publish(listeners), "loader");
        loader.start();
        System.out.println(wanted.result.join());
    }

    static void publish(List<Listener> listeners) {
        String text = read();
        for (Listener one : listeners) {
            try {
                one.loaded(text);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** One party of an exchange waits for a monitor, whose owner reads. */
    static void exchange() throws Exception {
        Exchanger<String> place = new Exchanger<>();
        Object lock = new Object();
        new Thread(() -> audit(lock), "audit").start();
        Thread.sleep(300);
        new Thread(() -> swap(place, lock), "swap").start();
        System.out.println(place.exchange("mine"));
    }

    static void audit(Object lock) {
        synchronized (lock) {
            System.out.println(read());
        }
    }

    static void swap(Exchanger<String> place, Object lock) {
        try {
            synchronized (lock) {
                System.out.println("swaps");
            }
            place.exchange("yours");
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    /** A party of a phaser waits for a child. */
    static void phases() throws Exception {
        Phaser phaser = new Phaser(2);
        new Thread(() -> step(phaser), "step").start();
        phaser.arriveAndAwaitAdvance();
        System.out.println("next phase");
    }

    static void step(Phaser phaser) {
        try {
            new ProcessBuilder("sleep", "3600").start().waitFor();
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
        phaser.arrive();
    }

    /** computeIfAbsent of one key under a loader that asks for another, and the other way round. */
    static void caches() throws Exception {
        Map<String, String> users = new ConcurrentHashMap<>();
        Map<String, String> groups = new ConcurrentHashMap<>();
        new Thread(() -> users.computeIfAbsent("a", key -> group(groups, key)), "user").start();
        groups.computeIfAbsent("a", key -> user(users, key));
    }

    static String group(Map<String, String> groups, String key) {
        pause();
        return groups.computeIfAbsent(key, one -> one);
    }

    static String user(Map<String, String> users, String key) {
        pause();
        return users.computeIfAbsent(key, one -> one);
    }

    static void pause() {
        try {
            Thread.sleep(500);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    static void bystanders() throws IOException {
        ServerSocket clients = new ServerSocket(0);
        Thread server = new Thread(() -> {
            try {
                clients.accept();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }, "server");
        server.setDaemon(true);
        server.start();
        Executors.newScheduledThreadPool(1)
                .scheduleAtFixedRate(() -> { }, 0, 200, TimeUnit.MILLISECONDS);
    }

    public static void main(String[] args) throws Exception {
        System.out.println("begins");
        bystanders();
        switch (args[0]) {
            case "latch" -> latch();
            case "short" -> short_();
            case "permits" -> permits();
            case "callback" -> callback();
            case "exchange" -> exchange();
            case "phases" -> phases();
            case "caches" -> caches();
            default -> throw new IllegalArgumentException(args[0]);
        }
    }
}
