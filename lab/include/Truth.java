// SPDX-License-Identifier: MIT
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * How a Java program of the lab says what is true of it, as truth.h does for C. Addresses of fields
 * hold under the serial collector and with a heap below 4 GiB (-XX:+UseSerialGC -Xmx256m).
 */
final class Truth {
    private static final sun.misc.Unsafe UNSAFE = unsafe();

    private static boolean isMoved;

    private Truth() {}

    static synchronized void say(String line) {
        try {
            Path path = Path.of(System.getenv().getOrDefault("LAB_TRUTH", "/dev/stderr"));
            Files.writeString(
                    path, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (java.io.IOException error) {
            throw new AssertionError(error);
        }
    }

    /** The calling thread has this role. */
    static void role(String name) {
        try {
            Path link = Files.readSymbolicLink(Path.of("/proc/thread-self"));
            say("role " + name + " " + link.getName(0) + " " + link.getName(2));
        } catch (java.io.IOException error) {
            throw new AssertionError(error);
        }
    }

    static void word(String name, long address, int size) {
        say("word " + name + " 0x" + Long.toHexString(address) + " " + size);
    }

    /**
     * A field of an object. All objects are first moved to where they stay: once, as a second
     * collection would move those again whose addresses were told.
     */
    @SuppressWarnings("deprecation")
    static synchronized void field(
            String name, Object object, Class<?> owner, String field, int size) {
        if (!isMoved) {
            System.gc();
            System.gc();
            isMoved = true;
        }
        Object[] holder = {object};
        long base = UNSAFE.arrayBaseOffset(Object[].class);
        boolean narrow = UNSAFE.arrayIndexScale(Object[].class) == 4;
        long address = narrow ? UNSAFE.getInt(holder, base) & 0xffffffffL
                : UNSAFE.getLong(holder, base);
        try {
            Field found = owner.getDeclaredField(field);
            word(name, address + UNSAFE.objectFieldOffset(found), size);
        } catch (NoSuchFieldException error) {
            throw new AssertionError(error);
        }
    }

    static sun.misc.Unsafe unsafe() {
        try {
            Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (sun.misc.Unsafe) field.get(null);
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }
}
