/* SPDX-License-Identifier: MIT */
/* Freezes one thread of this process for good: a signal finds it wherever it is, and its handler
 * never returns. */
#ifndef FREEZE_H
#define FREEZE_H

#include "truth.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>

static volatile int frozen;

static void stay(int number)
{
    (void)number;
    LAB_ROLE("frozen");
    frozen = 1;
    for (;;)
        pause();
}

__attribute__((constructor)) static void ready_to_freeze(void)
{
    signal(SIGUSR1, stay);
}

/* Freezes the thread of this number among those beside the caller, which waits for it next. */
__attribute__((unused)) static void freeze(int which)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    while ((task = readdir(tasks)) != NULL) {
        int tid = atoi(task->d_name);
        if (tid == 0 || tid == (int)syscall(SYS_gettid) || which-- > 0)
            continue;
        syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
        while (!frozen)
            usleep(1000);
        break;
    }
    closedir(tasks);
    LAB_ROLE("waiter");
    LAB_READY();
}
#endif
