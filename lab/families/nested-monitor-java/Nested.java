// SPDX-License-Identifier: MIT
public class Nested {
    private final Object inner = new Object();
    private boolean filled;

    synchronized void take() throws InterruptedException {
        synchronized (inner) {
            while (!filled) inner.wait();
        }
    }

    synchronized void fill() {
        synchronized (inner) {
            filled = true;
            inner.notifyAll();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Nested nested = new Nested();
        Thread taker = new Thread(() -> {
            try {
                nested.take();
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }, "taker");
        taker.start();
        Thread.sleep(200);
        Thread filler = new Thread(nested::fill, "filler");
        filler.start();
        Thread.sleep(200);
        Truth.role("waiter");
        Truth.say("ready");
        taker.join();
    }
}
