// SPDX-License-Identifier: MIT
import java.util.HashMap;
import java.util.Map;

public final class Work {
    public static void main(String[] args) {
        Truth.role("waiter");
        Truth.say("ready");
        double[][] matrix = new double[200][200];
        Map<String, Double> sums = new HashMap<>();
        for (long round = 0;; round++) {
            double sum = 0;
            for (int row = 0; row < 200; row++) {
                for (int column = 0; column < 200; column++) {
                    matrix[row][column] = matrix[column][row] * 0.5 + round;
                    sum += matrix[row][column];
                }
            }
            sums.merge("sum" + round % 1000, sum, Double::sum);
        }
    }
}
