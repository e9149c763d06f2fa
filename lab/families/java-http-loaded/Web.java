// SPDX-License-Identifier: MIT
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

public final class Web {
    private static final AtomicLong ANSWERED = new AtomicLong();

    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 16);
        server.setExecutor(Executors.newFixedThreadPool(2));
        server.createContext("/", exchange -> {
            byte[] text = Long.toString(ANSWERED.incrementAndGet()).getBytes();
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.start();
        URI uri = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/");
        for (int client = 0; client < 3; client++) {
            new Thread(() -> ask(uri), "client-" + client).start();
        }
        while (ANSWERED.get() < 100) {
            Thread.sleep(20);
        }
        Truth.say("ready");
    }

    private static void ask(URI uri) {
        HttpClient client = HttpClient.newHttpClient();
        for (int round = 0; round < 5_000_000; round++) {
            try {
                HttpRequest request = HttpRequest.newBuilder(uri).build();
                client.send(request, HttpResponse.BodyHandlers.ofString());
            } catch (Exception error) {
                throw new AssertionError(error);
            }
        }
    }
}
