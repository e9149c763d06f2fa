// SPDX-License-Identifier: MIT
import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;

/** Waits for a stage behind a task that reads, or beside it for what nobody completes. */
class Stages {
    static int read() {
        try {
            return System.in.read();
        } catch (IOException e) {
            return 0;
        }
    }

    public static void main(String[] arguments) {
        var pool = Executors.newFixedThreadPool(2);
        var first = CompletableFuture.supplyAsync(() -> 1, pool);
        var second = CompletableFuture.supplyAsync(Stages::read, pool);
        var sum = first.thenCombine(second, Integer::sum).thenApply(all -> all + 1);
        var alone = new CompletableFuture<Integer>();
        System.out.println("started");
        System.out.println(arguments[0].equals("stages") ? sum.join() : alone.join() + sum.join());
    }
}
