// Queens on a board, with streams and boxes.
import java.util.*; import java.util.stream.*;
public class Queens {
    static long solve(int n, int row, List<Integer> placed) { if (row == n) return 1;
        return IntStream.range(0, n).filter(c -> IntStream.range(0, row).noneMatch(r -> placed.get(r) == c || Math.abs(placed.get(r) - c) == row - r))
            .mapToLong(c -> { List<Integer> next = new ArrayList<>(placed); next.add(c); return solve(n, row + 1, next); }).sum(); }
    static volatile long found; public static void main(String[] a) { for (;;) found += solve(9, 0, List.of()); }
}
