// SPDX-License-Identifier: MIT
import java.util.concurrent.locks.ReentrantLock;

/** A monitor is kept over a sleep; or two threads take two locks in opposite orders. */
public final class Field {
    private static final Object STORE = new Object();
    private static final ReentrantLock LEFT = new ReentrantLock();
    private static final ReentrantLock RIGHT = new ReentrantLock();
    private static int sum;

    private static Thread starts(Runnable run) {
        Thread thread = new Thread(run);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static void ms(long time) {
        try {
            Thread.sleep(time);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    private static void both(ReentrantLock first, ReentrantLock second, long pause) {
        first.lock();
        ms(pause);
        second.lock();
        sum++;
        second.unlock();
        first.unlock();
    }

    private static void monitor() {
        starts(() -> {
            Truth.role("indexer");
            ms(700);
            synchronized (STORE) {
                ms(900);
            }
        });
        for (int i = 0; i < 150; i++) {
            synchronized (STORE) {
                sum++;
            }
            ms(10);
        }
        Truth.say("ready");
    }

    private static void circle() {
        starts(() -> {
            Truth.role("other");
            for (int i = 0; i < 40; i++) {
                both(LEFT, RIGHT, 1);
                ms(7);
            }
            both(RIGHT, LEFT, 200);
        });
        Truth.role("main");
        starts(() -> {
            ms(2500);
            Truth.say("ready");
        });
        while (true) {
            both(LEFT, RIGHT, 1);
            ms(5);
        }
    }

    public static void main(String[] words) {
        starts(() -> {
            Truth.role("clock");
            while (true) ms(20);
        });
        if (words[0].equals("monitor")) monitor(); else circle();
        System.exit(0);
    }
}
