// SPDX-License-Identifier: MIT
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.reflect.Field;
import java.nio.Buffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;

public final class Mapped {
    private static final VarHandle INTS =
            MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    public static void main(String[] args) throws Exception {
        String path = System.getenv("LAB_RUN") + "/meeting";
        MappedByteBuffer buffer;
        try (RandomAccessFile file = new RandomAccessFile(path, "rw")) {
            buffer = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096);
        }
        String code = "import mmap, os, signal, sys\n"
                + "file = open(sys.argv[1], 'r+b')\n"
                + "memory = mmap.mmap(file.fileno(), 4096)\n"
                + "os.kill(os.getpid(), signal.SIGSTOP)\n"
                + "memory[64] = 1\n";
        Process setter = new ProcessBuilder("python3", "-c", code, path).start();
        Thread.sleep(700);
        Truth.say("role setter " + setter.pid());
        Field address = Buffer.class.getDeclaredField("address");
        @SuppressWarnings("deprecation")
        long offset = Truth.unsafe().objectFieldOffset(address);
        Truth.word("flag", Truth.unsafe().getLong(buffer, offset) + 64, 4);
        Truth.role("waiter");
        Truth.say("ready");
        poll(buffer);
        Thread.sleep(5000);
    }

    private static void poll(MappedByteBuffer buffer) {
        while ((int) INTS.getVolatile(buffer, 64) == 0) {
            Thread.onSpinWait();
        }
    }
}
