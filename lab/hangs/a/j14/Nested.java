// nested monitor lockout: the waiter keeps the outer lock, which the notifier needs
public class Nested {
  final Object inner = new Object(); boolean filled;
  synchronized void take() throws InterruptedException { synchronized (inner) { while (!filled) inner.wait(); } }
  synchronized void fill() { synchronized (inner) { filled = true; inner.notifyAll(); } }
  public static void main(String[] a) throws Exception { Nested n = new Nested();
    Thread t = new Thread(() -> { try { n.take(); } catch (InterruptedException e) {} }, "taker"); Thread f = new Thread(() -> { try { Thread.sleep(150); } catch (InterruptedException e) {} n.fill(); }, "filler"); t.start(); f.start(); t.join(); }
}
