// SPDX-License-Identifier: MIT
// What a Java machine does with signals, threads and code, in the manner of jtreg: each method says
// `NAME ok`, or what went wrong.
import java.lang.ref.WeakReference;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;

public class Suite {
    static int[] none;
    static int depth;

    static boolean nullChecks() {
        int caught = 0;
        for (int i = 0; i < 20000; i++) {
            try { caught += none.length; } catch (NullPointerException e) { caught++; }
        }
        return caught == 20000;
    }

    static int dig() { depth++; return dig() + 1; }

    static boolean stackOverflow() {
        try { dig(); } catch (StackOverflowError e) { return depth > 1000; }
        return false;
    }

    static boolean divisionByZero() {
        int caught = 0;
        for (int i = 0; i < 20000; i++) {
            try { caught += i / (i - i); } catch (ArithmeticException e) { caught++; }
        }
        return caught == 20000;
    }

    static boolean latches() throws Exception {
        CountDownLatch latch = new CountDownLatch(16);
        for (int i = 0; i < 16; i++) new Thread(latch::countDown).start();
        return latch.await(60, TimeUnit.SECONDS);
    }

    static boolean forkJoin() {
        return IntStream.range(0, 200000).parallel().map(i -> i % 7).sum()
            == IntStream.range(0, 200000).map(i -> i % 7).sum();
    }

    static boolean maps() throws Exception {
        ConcurrentHashMap<Integer, Integer> map = new ConcurrentHashMap<>();
        ExecutorService pool = Executors.newFixedThreadPool(4);
        for (int t = 0; t < 4; t++) {
            pool.submit(() -> {
                for (int i = 0; i < 20000; i++) map.merge(i % 97, 1, Integer::sum);
            });
        }
        pool.shutdown();
        return pool.awaitTermination(60, TimeUnit.SECONDS)
            && map.values().stream().mapToInt(i -> i).sum() == 80000;
    }

    static boolean collection() throws Exception {
        WeakReference<Object> weak = new WeakReference<>(new Object());
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < 4000; i++) {
            kept.add(new byte[65536]);
            if (kept.size() > 100) kept.clear();
        }
        for (int i = 0; i < 100 && weak.get() != null; i++) { System.gc(); Thread.sleep(10); }
        return weak.get() == null;
    }

    static boolean interrupts() throws Exception {
        AtomicInteger seen = new AtomicInteger();
        Thread sleeper = new Thread(() -> {
            try { Thread.sleep(60000); } catch (InterruptedException e) { seen.incrementAndGet(); }
        });
        Thread parked = new Thread(() -> {
            while (!Thread.interrupted()) LockSupport.park();
            seen.incrementAndGet();
        });
        sleeper.start(); parked.start(); Thread.sleep(200);
        sleeper.interrupt(); parked.interrupt(); sleeper.join(60000); parked.join(60000);
        return seen.get() == 2;
    }

    static boolean processes() throws Exception {
        Process child = new ProcessBuilder("sh", "-c", "read line; echo $line; exit 3").start();
        child.getOutputStream().write("hello\n".getBytes()); child.getOutputStream().close();
        return new String(child.getInputStream().readAllBytes()).equals("hello\n")
            && child.waitFor() == 3;
    }

    static boolean files() throws Exception {
        Path path = Files.createTempFile("suite", "");
        Files.writeString(path, "x".repeat(100000));
        boolean same = Files.size(path) == 100000 && Files.readString(path).length() == 100000;
        Files.delete(path);
        return same;
    }

    static boolean timers() throws Exception {
        ScheduledExecutorService timer = Executors.newScheduledThreadPool(1);
        AtomicInteger ticks = new AtomicInteger();
        timer.scheduleAtFixedRate(ticks::incrementAndGet, 1, 1, TimeUnit.MILLISECONDS);
        for (int i = 0; i < 600 && ticks.get() < 50; i++) Thread.sleep(100);
        timer.shutdownNow();
        return ticks.get() >= 50;
    }

    static boolean compiledAndThrownOut() throws Exception {
        long sum = 0;
        for (int kind = 0; kind < 3; kind++) {
            List<Integer> list = kind == 0 ? new ArrayList<>()
                : kind == 1 ? new java.util.LinkedList<>() : new CopyOnWriteArrayList<>();
            for (int i = 0; i < 300; i++) list.add(i);
            for (int round = 0; round < 300; round++) for (int i : list) sum += i;
        }
        return sum == 3L * 300 * 44850;
    }

    public static void main(String[] arguments) throws Exception {
        for (Method method : Suite.class.getDeclaredMethods()) {
            if (method.getReturnType() != boolean.class || method.getParameterCount() > 0
                || method.isSynthetic()) continue;
            String result;
            try {
                result = (boolean) method.invoke(null) ? "ok" : "wrong";
            } catch (Exception e) {
                result = "threw " + e.getCause();
            }
            System.out.println(method.getName() + " " + result);
        }
        System.exit(0);
    }
}
