// SPDX-License-Identifier: MIT
// Loops that poll fields, and loops that work, compute, or wait for something else.

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

public class Polled {
    static volatile int done;
    static volatile boolean cancelled;
    static int total = 3;
    static long sum;

    volatile int state;
    int goal = 2;

    boolean isDone() {
        return state >= goal;
    }

    void await() throws InterruptedException {
        while (!isDone()) {
            pause();
        }
    }

    static void pause() throws InterruptedException {
        Thread.sleep(5);
    }

    static void idle() {
        try {
            Thread.sleep(3_600_000);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    static void set(Polled one) {
        idle();
        one.state = 2;
    }

    public static void main(String[] args) throws InterruptedException {
        Polled mine = new Polled();
        Polled other = args[0].equals("other") ? new Polled() : mine;
        switch (args[0]) {
            case "static" -> start("finisher", () -> {
                idle();
                done = 3;
            });
            case "field" -> start("finisher", () -> set(mine));
            case "other" -> start("finisher", () -> set(other));
            case "nobody", "works", "counts", "waits" -> start("finisher", () -> {
                idle();
                cancelled = false;
            });
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.println("started");
        switch (args[0]) {
            case "static" -> spin();
            case "works" -> work();
            case "counts" -> count();
            case "waits" -> waitForResult(new CompletableFuture<>());
            default -> mine.await();
        }
    }

    static void spin() {
        while (done < total && !cancelled) {
            Thread.onSpinWait();
        }
    }

    // It asks in each round, and computes with numbers of its own.
    static void count() {
        int numbers = 0;
        while (!cancelled) {
            for (int i = 0; i < 100_000; i++) {
                numbers = numbers * 31 + i;
            }
        }
        System.out.println(numbers);
    }

    // It waits for the result, whose method has the name of one that only asks.
    static void waitForResult(CompletableFuture<Integer> result) {
        try {
            while (!cancelled) {
                result.get();
            }
        } catch (InterruptedException | ExecutionException e) {
            throw new IllegalStateException(e);
        }
    }

    static void work() {
        while (!cancelled) {
            sum += System.nanoTime() % 7;
        }
    }
}
