// SPDX-License-Identifier: MIT
import java.util.concurrent.*;
public class FullQueue {
    static final BlockingQueue<Integer> orders = new ArrayBlockingQueue<>(5);
    static void consume() {
        try {
            for (;;) {
                int n = orders.take();
                if (n == 4)
                    throw new RuntimeException("order " + n + " has no price");
            }
        } catch (InterruptedException e) {
        }
    }
    static void produce() {
        try {
            for (int i = 0; i < 100; i++) {
                Thread.sleep(10);
                orders.put(i);
            }
        } catch (InterruptedException e) {
        }
    }
    public static void main(String[] a) throws Exception {
        Thread c = new Thread(FullQueue::consume, "consumer");
        Thread p = new Thread(FullQueue::produce, "producer");
        c.start();
        p.start();
        Thread m = new Thread(() -> {
            for (;;) try {
                    Thread.sleep(300);
                } catch (InterruptedException e) {
                }
        }, "monitor");
        m.setDaemon(true);
        m.start();
        p.join();
        c.join();
    }
}
