// SPDX-License-Identifier: MIT
import java.util.concurrent.locks.*;
public class Upgrade {
    static final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
    static int version;
    static void bump() {
        lock.writeLock().lock();
        try {
            version++;
        } finally {
            lock.writeLock().unlock();
        }
    }
    static int check() {
        lock.readLock().lock();
        try {
            if (version == 0)
                bump();
            return version;
        } finally {
            lock.readLock().unlock();
        }
    }
    public static void main(String[] a) throws Exception {
        Thread t = new Thread(() -> {
            try {
                Thread.sleep(150);
            } catch (InterruptedException e) {
            }
            check();
        }, "checker");
        t.start();
        Thread o = new Thread(() -> {
            for (;;) {
                lock.readLock().lock();
                lock.readLock().unlock();
                try {
                    Thread.sleep(50);
                } catch (InterruptedException e) {
                }
            }
        }, "poller");
        o.setDaemon(true);
        o.start();
        t.join();
    }
}
