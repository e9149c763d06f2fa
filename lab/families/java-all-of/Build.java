// SPDX-License-Identifier: MIT
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Modules are built side by side by commands. {@code Build SECONDS}: how long one takes. */
public class Build {
    static int compile(String module, String... command) {
        try {
            return run(new ProcessBuilder(command).inheritIO().start());
        } catch (Exception e) {
            throw new IllegalStateException(module, e);
        }
    }

    private static int run(Process process) throws InterruptedException {
        return process.waitFor();
    }

    static void report(Executor executor, List<String> done) {
        Executors.newSingleThreadScheduledExecutor().scheduleWithFixedDelay(
                () -> executor.execute(done::size), 200, 200, TimeUnit.MILLISECONDS);
    }

    public static void main(String[] arguments) throws Exception {
        Executor executor = Executors.newCachedThreadPool();
        List<String> done = new ArrayList<>();
        List<CompletableFuture<?>> modules = new ArrayList<>();
        String[][] commands = {{"true"}, {"sleep", arguments[0]}, {"true"}};
        for (String[] command : commands) {
            String name = "module " + modules.size();
            modules.add(CompletableFuture
                    .supplyAsync(() -> compile(name, command), executor)
                    .thenAccept(code -> done.add(name + code)));
        }
        report(executor, done);
        System.out.println("begins");
        CompletableFuture.allOf(modules.toArray(CompletableFuture[]::new)).join();
        System.out.println(done);
        Thread.sleep(100_000_000);
    }
}
