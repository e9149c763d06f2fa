/* SPDX-License-Identifier: MIT */
/* On a loaded machine anybody may come late. So who is to wait is waited for, not trusted to be
 * there by now. */
#include "roles.h"
#include <sys/types.h>

enum { LOOK_US = 4000 };

/* Returns once this thread sleeps in this call: what wakes it is what the caller does next. */
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
