// SPDX-License-Identifier: MIT
// Two threads, `one` and `two`, that each hold what the other wants: a monitor or a ReentrantLock.

import java.util.concurrent.locks.ReentrantLock;

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

    static void pause() {
        try {
            Thread.sleep(500);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] args) throws InterruptedException {
        Object a = new Object();
        Object b = new Object();
        ReentrantLock c = new ReentrantLock();
        ReentrantLock d = new ReentrantLock(true);
        boolean monitors = args[0].equals("monitor");
        Thread one = new Thread(() -> { if (monitors) hold(a, b); else lock(c, d); }, "one");
        Thread two = new Thread(() -> { if (monitors) hold(b, a); else lock(d, c); }, "two");
        one.start();
        two.start();
        System.out.println("started");
        one.join();
    }
}
