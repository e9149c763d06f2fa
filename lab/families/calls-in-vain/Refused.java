// SPDX-License-Identifier: MIT
import java.io.IOException;
import java.net.Socket;

public class Refused {
    public static void main(String[] arguments) {
        while (true) {
            try (Socket socket = new Socket("127.0.0.1", 9)) {
                return;
            } catch (IOException e) {
                continue;
            }
        }
    }
}
