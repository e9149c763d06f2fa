// A producer spins until a slow consumer has moved its sequence; the consumer reads a silent input. A third thread counts.
public class Sequence {
    static final class Cursor { long p1, p2, p3, p4, p5, p6, p7; volatile long value = -1; long q1, q2, q3, q4, q5, q6, q7; }
    static final long[] slots = new long[16]; static long ticks; static Cursor produced = new Cursor(), consumed = new Cursor();
    public static void main(String[] a) throws Exception {
        Truth.field("consumed", consumed, Cursor.class, "value", 8);
        Thread c = new Thread(() -> { try { for (long n = 0;; n++) { while (produced.value < n) Thread.onSpinWait(); if (n == 40) { if (System.in.read() < 0) return; } slots[(int) (n % 16)]++; consumed.value = n; } } catch (java.io.IOException e) { } });
        c.setDaemon(true); c.start(); Thread t = new Thread(() -> { for (;;) { try { Thread.sleep(2); } catch (InterruptedException e) { } ticks++; } }); t.setDaemon(true); t.start();
        Truth.role("waiter");
        for (long n = 0;; n++) { if (n == 55) { Truth.say("ready"); } while (n - consumed.value > 16) Thread.onSpinWait(); slots[(int) (n % 16)] = n; produced.value = n; }
    }
}
