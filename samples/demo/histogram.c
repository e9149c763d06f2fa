/* SPDX-License-Identifier: MIT */
/* Counts the bytes of each file, one OpenMP thread a file, and prints how many differ.
 *
 * With OMP_WAIT_POLICY=active a thread that is done spins in libgomp until the slowest
 * arrives at the barrier. Give it a FIFO that nobody writes and it spins for ever. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static long counts[2][256];

static void count_file(const char *path, long *count)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    for (int byte = getc(file); byte != EOF; byte = getc(file))
        count[byte]++;
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s FILE FILE\n", argv[0]);
        return 2;
    }
    int differing = 0;
#pragma omp parallel num_threads(2)
    {
        int mine = omp_get_thread_num();
        count_file(argv[1 + mine], counts[mine]);
#pragma omp barrier
#pragma omp for reduction(+ : differing)
        for (int byte = 0; byte < 256; byte++)
            differing += counts[0][byte] != counts[1][byte];
    }
    printf("%d byte values differ in number\n", differing);
    return 0;
}
