// A thread yields until a boolean is set; the thread that sets it waits for a queue.
import java.util.concurrent.*;
public class Latch {
    volatile boolean loaded; int rows; static volatile double sum;
    public static void main(String[] a) throws Exception {
        Latch latch = new Latch(); LinkedBlockingQueue<Integer> queue = new LinkedBlockingQueue<>();
        Truth.field("loaded", latch, Latch.class, "loaded", 1);
        Thread t = new Thread(() -> { try { latch.rows = queue.take(); latch.loaded = true; } catch (InterruptedException e) { } }); t.setDaemon(true); t.start();
        Thread b = new Thread(() -> { for (double x = 1;; x = x * 1.0001 % 1000) sum += x; }); b.setDaemon(true); b.start();
        Truth.role("waiter"); Truth.say("ready"); while (!latch.loaded) Thread.yield(); System.out.println(latch.rows);
    }
}
