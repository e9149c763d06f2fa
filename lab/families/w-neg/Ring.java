// A ring of numbers between a producer and a consumer that spin: both get on.
public class Ring {
    static final int SIZE = 1024; static final long[] slots = new long[SIZE];
    static volatile long head, tail; static long sum;
    public static void main(String[] a) throws Exception {
        Thread p = new Thread(() -> { for (long n = 0;; n++) { while (n - tail >= SIZE) Thread.onSpinWait(); slots[(int) (n % SIZE)] = n * n; head = n + 1; } }, "producer");
        Thread c = new Thread(() -> { for (long n = 0;; n++) { while (head <= n) Thread.onSpinWait(); long v = slots[(int) (n % SIZE)]; for (int i = 0; i < 20; i++) v = v * 31 + i; sum += v; tail = n + 1; } }, "consumer");
        p.start(); c.start(); p.join();
    }
}
