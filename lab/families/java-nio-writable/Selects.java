// SPDX-License-Identifier: MIT
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;

public final class Selects {
    public static void main(String[] args) throws Exception {
        ServerSocketChannel server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress("127.0.0.1", 0));
        SocketChannel client = SocketChannel.open(server.getLocalAddress());
        SocketChannel peer = server.accept();
        client.configureBlocking(false);
        Selector selector = Selector.open();
        client.register(selector, SelectionKey.OP_READ | SelectionKey.OP_WRITE);
        ArrayDeque<ByteBuffer> pending = new ArrayDeque<>();
        pending.add(ByteBuffer.wrap(new byte[100]));
        Truth.role("waiter");
        Truth.say("ready");
        while (peer.isOpen()) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isWritable() && !pending.isEmpty()) {
                    client.write(pending.remove());
                }
                if (key.isReadable()) {
                    client.read(ByteBuffer.allocate(100));
                }
            }
            selector.selectedKeys().clear();
        }
    }
}
