// SPDX-License-Identifier: MIT
import java.util.concurrent.*;
public class Latch {
    static void load(int n) {
        try {
            Thread.sleep(30L * n);
        } catch (InterruptedException e) {
            return;
        }
        if (n == 2)
            throw new IllegalStateException("shard " + n + " is missing");
    }
    public static void main(String[] a) throws Exception {
        CountDownLatch ready = new CountDownLatch(4);
        ScheduledExecutorService beat = Executors.newScheduledThreadPool(1);
        beat.scheduleAtFixedRate(() -> {}, 0, 200, TimeUnit.MILLISECONDS);
        ExecutorService idle = Executors.newFixedThreadPool(2);
        idle.submit(() -> {});
        idle.submit(() -> {});
        for (int i = 0; i < 4; i++) {
            int n = i;
            new Thread(() -> {
                load(n);
                ready.countDown();
            }, "loader-" + n).start();
        }
        ready.await();
        System.out.println("ready");
        beat.shutdown();
        idle.shutdown();
    }
}
