// SPDX-License-Identifier: MIT
import java.util.ArrayList;
import java.util.List;

public final class Index {
    static final class Entry {
        Entry left;
        Entry right;
        byte[] data = new byte[24];
    }

    public static void main(String[] args) {
        List<Entry> kept = new ArrayList<>();
        Runtime runtime = Runtime.getRuntime();
        Truth.role("waiter");
        boolean told = false;
        long round = 0;
        while (true) {
            Entry entry = new Entry();
            entry.left = kept.isEmpty() ? null : kept.get((int) (round * 31 % kept.size()));
            if (!told || round % 4 == 0) {
                try {
                    if (runtime.totalMemory() - runtime.freeMemory() < 36L << 20 || !told) {
                        kept.add(entry);
                    }
                } catch (OutOfMemoryError full) {
                    kept.subList(kept.size() - kept.size() / 12, kept.size()).clear();
                    if (!told) {
                        told = true;
                        Truth.say("ready");
                    }
                }
            }
            round++;
        }
    }
}
