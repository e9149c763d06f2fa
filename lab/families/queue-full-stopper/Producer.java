// SPDX-License-Identifier: MIT
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;

public final class Producer {
    public static void main(String[] args) throws Exception {
        BlockingQueue<Integer> jobs = new ArrayBlockingQueue<>(4);
        Thread consumer = new Thread(() -> {
            try {
                while (true) {
                    System.out.println(10 / (5 - jobs.take()));
                }
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        });
        consumer.setDaemon(true);
        consumer.start();
        Truth.role("waiter");
        for (int number = 0; number < 100; number++) {
            if (number == 8) {
                Thread.sleep(200);
                Truth.say("ready");
            }
            jobs.put(number);
        }
    }
}
