/* SPDX-License-Identifier: MIT */
/* On a loaded machine any thread may come late. So a program checks that a thread waits, before
 * another one wakes it. */
#include "roles.h"
#include <sys/types.h>

enum { LOOK_US = 4000 };

/* Returns once this thread sleeps in this call. Then the caller wakes it by what it does next. */
static void until_sleeping(pid_t tid, long call)
{
    char path[32];
    long number;
    snprintf(path, sizeof path, "/proc/%d/syscall", tid);
    do {
        usleep(LOOK_US);
        FILE *file = fopen(path, "r");
        if (!file)
            abort();
        if (fscanf(file, "%ld", &number) != 1)
            number = -1; /* it runs */
        fclose(file);
    } while (number != call);
}
