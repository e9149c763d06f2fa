// SPDX-License-Identifier: MIT
// One thread waits for what another writes, in the way that the argument says. Each line on stdin
// makes the other write 3, with which the wait goes on.
import java.io.File;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.*;

public class Waits {
    static volatile int state;
    static final AtomicInteger counter = new AtomicInteger();
    static final int[] cells = new int[16];
    static final VarHandle CELLS = MethodHandles.arrayElementVarHandle(int[].class);
    static final ConcurrentHashMap<String, Integer> table = new ConcurrentHashMap<>();
    static final ReentrantLock lock = new ReentrantLock();
    static final Object monitor = new Object();
    static final CountDownLatch latch = new CountDownLatch(1);
    static final LinkedBlockingQueue<String> queue = new LinkedBlockingQueue<>();

    volatile int field;

    static void waits(String how, Waits object) throws Exception {
        switch (how) {
            case "nothing": while (state != 7) { } break;
            case "field": while (object.field != 7) { } break;
            case "spin": while (state != 7) Thread.onSpinWait(); break;
            case "yield": while (state != 7) Thread.yield(); break;
            case "sleep": while (state != 7) Thread.sleep(1); break;
            case "park": while (state != 7) LockSupport.parkNanos(500000); break;
            case "atomic": while (counter.get() != 7) Thread.onSpinWait(); break;
            case "array": while ((int) CELLS.getVolatile(cells, 5) != 7) Thread.yield(); break;
            case "map": while (table.get("ready") != 7) Thread.yield(); break;
            case "file": while (!new File("/tmp/never").exists()) Thread.yield(); break;
            case "file-sleep": while (!new File("/tmp/never").exists()) Thread.sleep(1); break;
            case "lock": lock.lock(); break;
            case "monitor": synchronized (monitor) { System.out.println("in"); } break;
            case "latch": latch.await(); break;
            case "queue": queue.take(); break;
            default: throw new IllegalArgumentException(how);
        }
        System.out.println("left");
    }

    static void write(Waits object, int value) {
        object.field = value;
        state = value;
        counter.set(value);
        CELLS.setVolatile(cells, 5, value);
        table.put("ready", 1000 + value);
    }

    public static void main(String[] arguments) throws Exception {
        Waits object = new Waits();
        write(object, 0);
        lock.lock();
        Thread waiter = new Thread(() -> {
            try {
                waits(arguments[0], object);
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }, "waiter");
        if (arguments[0].equals("join")) {
            Thread other = new Thread(() -> {
                try { latch.await(); } catch (Exception e) { }
            }, "worker");
            other.start();
            other.join();
        }
        synchronized (monitor) {
            waiter.setDaemon(true);
            waiter.start();
            while (System.in.read() >= 0) write(object, 3);
        }
    }
}
