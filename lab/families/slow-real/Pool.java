// SPDX-License-Identifier: MIT
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** The workers of a pool write a report each under one lock when a short job comes. */
public final class Pool {
    private static final Object STORE = new Object();
    private static volatile long sum;

    private static void report(String name) {
        Truth.role(name);
        synchronized (STORE) {
            long end = System.nanoTime() + 700_000_000L;
            while (System.nanoTime() < end) {
                for (int i = 0; i < 10_000; i++) sum += i;
            }
        }
    }

    public static void main(String[] words) throws Exception {
        Thread clock = new Thread(() -> {
            Truth.role("clock");
            while (true) {
                try { Thread.sleep(20); } catch (InterruptedException error) { return; }
            }
        });
        clock.setDaemon(true);
        clock.start();
        ExecutorService pool = Executors.newFixedThreadPool(2);
        for (int i = 0; i < 60; i++) {
            if (i == 40) {
                pool.submit(() -> report("worker"));
                Thread.sleep(20);
                pool.submit(() -> report("second"));
                Thread.sleep(20);
            }
            pool.submit(() -> { synchronized (Truth.class) { sum++; } }).get();
            Thread.sleep(10);
        }
        Truth.say("ready");
        System.exit(0);
    }
}
