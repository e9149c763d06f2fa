/* SPDX-License-Identifier: MIT */
/* OpenBLAS' pool, by way of dgemv: blas normal|spin ROUNDS. Its workers spin for
 * OPENBLAS_THREAD_TIMEOUT. */
#include "freeze.h"
#include <dlfcn.h>

#define SIDE 600

typedef void gemv(const char *, const int *, const int *, const double *, const double *,
                  const int *, const double *, const int *, const double *, double *, const int *);

static double matrix[SIDE * SIDE], vector[SIDE], product[SIDE];

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 40, side = SIDE, step = 1;
    double one = 1, zero = 0;
    void *library = dlopen("openblas-pthread/libopenblas.so.0", RTLD_NOW);
    if (library == NULL)
        library = dlopen("libopenblas.so.0", RTLD_NOW);
    gemv *multiply = library == NULL ? NULL : (gemv *)dlsym(library, "dgemv_");
    void (*set_threads)(int) =
        library == NULL ? NULL : (void (*)(int))dlsym(library, "openblas_set_num_threads");
    if (multiply == NULL || set_threads == NULL)
        return fprintf(stderr, "no OpenBLAS: %s\n", dlerror()), 2;
    set_threads(4); /* more than there are processors, too */
    for (int at = 0; at < SIDE * SIDE; at++)
        matrix[at] = vector[at % SIDE] = at % 7;
    for (int round = 0; round <= rounds; round++) {
        usleep(10000);
        if (round == rounds && strcmp(argv[1], "spin") == 0)
            freeze(1);
        multiply("N", &side, &side, &one, matrix, &side, vector, &step, &zero, product, &step);
    }
    return printf("%g\n", product[5]) < 0;
}
