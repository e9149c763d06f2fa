// SPDX-License-Identifier: MIT
import java.net.*;
import java.util.concurrent.*;
public class Chain {
    static String fetch(int port) {
        try (Socket s = new Socket("127.0.0.1", port)) {
            return "" + s.getInputStream().read();
        } catch (java.io.IOException e) {
            return "none";
        }
    }
    public static void main(String[] a) throws Exception {
        ServerSocket l = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
        ExecutorService pool = Executors.newFixedThreadPool(3, r -> {
            Thread t = new Thread(r, "fetcher");
            t.setDaemon(true);
            return t;
        });
        pool.submit(() -> {});
        CompletableFuture<String> f =
            CompletableFuture.supplyAsync(() -> fetch(l.getLocalPort()), pool)
                .thenApply(String::trim);
        Thread o = new Thread(() -> {
            for (;;) try {
                    Thread.sleep(200);
                } catch (InterruptedException e) {
                }
        }, "gauge");
        o.setDaemon(true);
        o.start();
        System.out.println(f.join());
    }
}
