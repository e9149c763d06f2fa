public class Held {
  static final Object config = new Object(); static int n;
  static void reload() { synchronized (config) { n++; } }
  public static void main(String[] a) throws Exception { Thread p = new Thread(() -> { for (;;) try { Thread.sleep(200); } catch (InterruptedException e) {} }, "pulse"); p.setDaemon(true); p.start(); synchronized (config) { Thread t = new Thread(Held::reload, "reloader"); t.start(); Thread.sleep(150); t.join(); } }
}
