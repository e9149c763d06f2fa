/* SPDX-License-Identifier: MIT */
/* The pool of LLVM's OpenMP: omp normal|spin ROUNDS. */
#include "freeze.h"

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 40;
    double sum = 0;
    for (int round = 0; round <= rounds; round++) {
        usleep(10000);
        if (round == rounds && strcmp(argv[1], "spin") == 0)
            freeze(1);
#pragma omp parallel for reduction(+ : sum)
        for (int at = 1; at < 20000 + 1000 * (round % 5); at++)
            sum += 1.0 / at;
    }
    return printf("%g\n", sum) < 0;
}
