// SPDX-License-Identifier: MIT
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * A travel site combines prices of two suppliers in stages. {@code Trip silent}: the supplier of
 * hotels takes the question and does not answer.
 */
public class Trip {
    record Offer(String what, int price) {}

    static class Supplier {
        private final int port;

        Supplier(int port) {
            this.port = port;
        }

        Offer offer(String what) {
            try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
                socket.getOutputStream().write((what + "\n").getBytes());
                var lines = new BufferedReader(new InputStreamReader(socket.getInputStream()));
                return new Offer(what, Integer.parseInt(readPrice(lines)));
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        }

        private String readPrice(BufferedReader lines) throws IOException {
            return lines.readLine();
        }
    }

    static int serve(String silentFor) throws IOException {
        ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Thread server = new Thread(() -> {
            while (true) {
                try {
                    Socket client = listener.accept();
                    var lines = new BufferedReader(new InputStreamReader(client.getInputStream()));
                    if (!lines.readLine().equals(silentFor)) {
                        client.getOutputStream().write("120\n".getBytes());
                        client.close();
                    }
                } catch (IOException e) {
                    return;
                }
            }
        }, "suppliers");
        server.setDaemon(true);
        server.start();
        return listener.getLocalPort();
    }

    public static void main(String[] arguments) throws Exception {
        String silent = arguments.length > 0 && arguments[0].equals("silent") ? "hotel" : "none";
        Supplier supplier = new Supplier(serve(silent));
        ExecutorService io = Executors.newFixedThreadPool(4);
        Executors.newSingleThreadScheduledExecutor()
                .scheduleAtFixedRate(() -> {}, 0, 500, TimeUnit.MILLISECONDS);
        System.out.println("begins");
        CompletableFuture<Offer> flight =
                CompletableFuture.supplyAsync(() -> supplier.offer("flight"), io);
        CompletableFuture<Offer> hotel =
                CompletableFuture.supplyAsync(() -> supplier.offer("hotel"), io);
        CompletableFuture<Integer> total = flight
                .thenCombine(hotel, (one, other) -> one.price() + other.price())
                .thenApply(price -> price + 15);
        System.out.println("trip costs " + total.join());
    }
}
