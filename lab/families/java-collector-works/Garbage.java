// SPDX-License-Identifier: MIT
import java.util.HashMap;
import java.util.Map;

public final class Garbage {
    public static void main(String[] args) {
        Truth.role("waiter");
        Truth.say("ready");
        long total = 0;
        for (long round = 0; total >= 0; round++) {
            Map<String, Long> counts = new HashMap<>();
            for (int word = 0; word < 1000; word++) {
                counts.merge("word " + (word * round) % 311, 1L, Long::sum);
            }
            total += counts.size();
        }
    }
}
