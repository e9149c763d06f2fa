// SPDX-License-Identifier: MIT
import java.io.ByteArrayInputStream;
import org.apache.commons.fileupload.MultipartStream;

public final class Upload {
    public static void main(String[] args) throws Exception {
        Truth.role("waiter");
        Truth.say("ready");
        byte[] boundary = "a".repeat(4092).getBytes();
        byte[] body = ("b".repeat(5000) + "\r\n").getBytes();
        MultipartStream parts =
                new MultipartStream(new ByteArrayInputStream(body), boundary, 4096);
        System.out.println(parts.skipPreamble());
    }
}
