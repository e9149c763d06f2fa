// SPDX-License-Identifier: MIT

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;

/** Hangs of a backend: {@code Backend HANG} says that it begins, and stands a moment later. */
public class Backend {
    static void work(BlockingQueue<String> jobs, Semaphore permits) {
        try {
            while (true) {
                String job = jobs.take();
                permits.acquire();
                if (job.isEmpty()) {
                    throw new IllegalArgumentException("no job");
                }
                System.out.println(job);
                permits.release();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    /** A worker ended by an exception, with a permit; others wait for jobs. */
    static void leaked() throws InterruptedException {
        Semaphore permits = new Semaphore(1);
        for (int n = 0; n < 3; n++) {
            BlockingQueue<String> jobs = new LinkedBlockingQueue<>();
            new Thread(() -> work(jobs, permits), "worker-" + n).start();
            if (n == 1) {
                jobs.put("");
            }
        }
        Thread.sleep(500);
        permits.acquire();
        permits.release();
    }

    abstract static class Step {
        final CompletableFuture<Integer> done = new CompletableFuture<>();

        abstract void end(int result);
    }

    static final class Parse extends Step {
        @Override
        void end(int result) {
            done.complete(result);
        }
    }

    static void run(Step step, Object lock) {
        synchronized (lock) {
            System.out.println("runs");
        }
        step.end(1);
    }

    /** Who is to complete the future wants the monitor of the one that waits. */
    static void step() throws InterruptedException {
        Object lock = new Object();
        Step step = new Parse();
        synchronized (lock) {
            new Thread(() -> run(step, lock), "runner").start();
            System.out.println(step.done.join());
        }
    }

    public static void main(String[] args) throws Exception {
        System.out.println("begins");
        if (args[0].equals("leaked")) {
            leaked();
        } else {
            step();
        }
    }
}
