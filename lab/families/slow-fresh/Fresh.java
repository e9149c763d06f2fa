// SPDX-License-Identifier: MIT
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A short job waits for a thread of the pool: both have long ones. */
public final class Fresh {
    private static volatile long sum;

    private static void computes(String role) {
        Truth.role(role);
        long end = System.nanoTime() + 900_000_000L;
        while (System.nanoTime() < end) sum++;
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
        for (int i = 0; i < 100; i++) {
            if (i == 60) {
                pool.submit(() -> computes("first"));
                pool.submit(() -> computes("second"));
            }
            pool.submit(() -> { sum++; }).get();
            Thread.sleep(10);
        }
        Truth.say("ready");
        System.exit(0);
    }
}
