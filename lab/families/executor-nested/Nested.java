// SPDX-License-Identifier: MIT
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public final class Nested {
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newSingleThreadExecutor();
        Future<Integer> outer = pool.submit(() -> {
            Future<Integer> inner = pool.submit(() -> 7);
            Truth.role("worker");
            return inner.get();
        });
        Thread.sleep(300);
        Truth.role("waiter");
        Truth.say("ready");
        System.out.println(outer.get());
        pool.shutdown();
    }
}
