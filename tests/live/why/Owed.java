// SPDX-License-Identifier: MIT
// `main` waits in a way that names no owner; the argument says how. The thread that is to end the
// wait has the object at hand, and comes to the call that does. Or no thread is left that does.

import java.io.IOException;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

public class Owed {
    interface Act {
        void run() throws Exception;
    }

    static final CompletableFuture<String> PRICE = new CompletableFuture<>();
    static final BlockingQueue<byte[]> FRAMES = new ArrayBlockingQueue<>(4);
    static final Object DISK = new Object();
    static final ReentrantReadWriteLock TABLE = new ReentrantReadWriteLock();
    static final SynchronousQueue<String> HAND = new SynchronousQueue<>();

    static Thread start(String name, Act act) {
        Thread thread = new Thread(() -> {
            try {
                act.run();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, name);
        thread.start();
        return thread;
    }

    static void feed() throws IOException {
        int first = System.in.read();
        PRICE.complete("" + first);
    }

    static void compact() throws Exception {
        synchronized (DISK) {
            new ProcessBuilder("sleep", "100000").start().waitFor();
        }
    }

    static void write() throws InterruptedException {
        while (true) {
            byte[] frame = FRAMES.take();
            synchronized (DISK) {
                frame[0]++;
            }
        }
    }

    static void produce() throws InterruptedException {
        while (true) {
            FRAMES.put(new byte[16]);
        }
    }

    static void read() throws InterruptedException {
        TABLE.readLock().lock();
        HAND.put("x");
        TABLE.readLock().unlock();
    }

    static void take() throws InterruptedException {
        Thread.sleep(300);
        TABLE.writeLock().lock();
        System.out.println(HAND.take());
        TABLE.writeLock().unlock();
    }

    static void parse(BlockingQueue<Integer> numbers) {
        for (String word : new String[] {"1", "x", "3"}) {
            numbers.add(Integer.parseInt(word));
        }
    }

    static int sum(BlockingQueue<Integer> numbers) throws InterruptedException {
        int sum = 0;
        for (int left = 3; left > 0; left--) {
            sum += numbers.take();
        }
        return sum;
    }

    static void part(CyclicBarrier step, int which) throws Exception {
        for (int round = 0; round < 5; round++) {
            if (which == 1 && round == 2) {
                throw new IllegalStateException("a bad cell");
            }
            step.await();
        }
    }

    static String page(ExecutorService pool) {
        return "<" + CompletableFuture.supplyAsync(() -> "user", pool).join() + ">";
    }

    static int convert() throws Exception {
        String shell = "yes | head -c 3000000";
        return new ProcessBuilder("sh", "-c", shell).start().waitFor();
    }

    static void hold(Lock lock) throws InterruptedException {
        lock.lock();
        Thread.sleep(100_000_000);
        lock.unlock();
    }

    static void signal(Lock lock, Condition ready) throws IOException {
        System.in.read();
        lock.lock();
        ready.signalAll();
        lock.unlock();
    }

    interface Listener {
        void heard(String text);
    }

    static final class Prints implements Listener {
        @Override
        public void heard(String text) {
            System.out.println(text);
        }
    }

    static final class Completes implements Listener {
        @Override
        public void heard(String text) {
            PRICE.complete(text);
        }
    }

    static void tell(List<Listener> all) throws Exception {
        new ProcessBuilder("sleep", "100000").start().waitFor();
        for (Listener one : all) {
            one.heard("1");
        }
    }

    static void idle() throws InterruptedException {
        while (true) {
            Thread.sleep(5000);
        }
    }

    public static void main(String[] args) throws Exception {
        System.out.println("started");
        switch (args[0]) {
            case "future" -> {
                start("feed", Owed::feed);
                System.out.println(PRICE.thenApply(String::length).join());
            }
            case "listeners" -> {
                start("teller", () -> tell(List.of(new Prints(), new Completes())));
                System.out.println(PRICE.join());
            }
            case "room" -> {
                start("compactor", Owed::compact);
                Thread.sleep(300);
                start("writer", Owed::write);
                produce();
            }
            case "crossed" -> {
                start("reader", Owed::read);
                start("taker", Owed::take).join();
            }
            case "ended" -> {
                BlockingQueue<Integer> numbers = new LinkedBlockingQueue<>();
                start("metrics", Owed::idle);
                start("parser", () -> parse(numbers));
                System.out.println(sum(numbers));
            }
            case "barrier" -> {
                CyclicBarrier step = new CyclicBarrier(3);
                Thread first = start("part-0", () -> part(step, 0));
                start("part-1", () -> part(step, 1));
                start("part-2", () -> part(step, 2));
                first.join();
            }
            case "nested" -> {
                ExecutorService pool = Executors.newFixedThreadPool(1);
                System.out.println(CompletableFuture.supplyAsync(() -> page(pool), pool).get());
            }
            case "child" -> {
                ScheduledExecutorService timers = Executors.newScheduledThreadPool(2);
                ScheduledFuture<Integer> code =
                        timers.schedule(Owed::convert, 10, TimeUnit.MILLISECONDS);
                System.out.println(code.get());
            }
            case "sleeps" -> {
                Lock lock = new ReentrantLock();
                start("vacuum", () -> hold(lock));
                Thread.sleep(300);
                lock.lock();
            }
            case "condition" -> {
                Lock lock = new ReentrantLock();
                Condition ready = lock.newCondition();
                start("metrics", Owed::idle);
                start("loader", () -> signal(lock, ready));
                lock.lock();
                ready.await();
            }
            // Threads at rest: nobody is to blame.
            default -> {
                BlockingQueue<Runnable> jobs = new LinkedBlockingQueue<>();
                for (int which = 0; which < 4; which++) {
                    start("worker-" + which, () -> {
                        while (true) {
                            jobs.take().run();
                        }
                    });
                }
                Executors.newFixedThreadPool(2).submit(() -> jobs.add(() -> {})).get();
                new CountDownLatch(1).await();
            }
        }
    }
}
