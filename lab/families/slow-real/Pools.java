// SPDX-License-Identifier: MIT
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The only threads of two pools wait for each other until their patience ends. */
public final class Pools {
    private static final ExecutorService LEFT = Executors.newFixedThreadPool(1);
    private static final ExecutorService RIGHT = Executors.newFixedThreadPool(1);
    private static volatile long sum;

    private static void asks(String name, ExecutorService other, boolean isTold) throws Exception {
        if (isTold) Truth.role(name);
        if (isTold) Thread.sleep(30);
        Future<?> answer = other.submit(() -> { sum++; });
        try {
            answer.get(300, TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            sum--;
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
        for (int i = 0; i < 80; i++) {
            boolean isTold = i == 50;
            if (isTold) RIGHT.submit(() -> { asks("right", LEFT, true); return 0; });
            LEFT.submit(() -> { asks("left", RIGHT, isTold); return 0; }).get();
            Thread.sleep(10);
        }
        Truth.say("ready");
        System.exit(0);
    }
}
