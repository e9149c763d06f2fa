/* SPDX-License-Identifier: MIT */
/* Freezes one thread of this process for good: a signal finds it wherever it is, and its handler
 * never returns. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int frozen;

static void stay(int number)
{
    (void)number;
    frozen = 1;
    for (;;)
        pause();
}

__attribute__((constructor)) static void ready_to_freeze(void)
{
    signal(SIGUSR1, stay);
}

/* Waits until a debugger stops the thread, which is asked for on stdout. */
static inline void await_stop(int tid)
{
    char path[64], line[256];
    int stopped = 0;
    printf("stop %d\n", tid);
    fflush(stdout);
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    while (!stopped) {
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            stopped |= strncmp(line, "State:\tt", 8) == 0;
        if (status != NULL)
            fclose(status);
        usleep(1000);
    }
}

/* Freezes the thread of this number among those beside the caller, by a signal, or from outside
 * with FREEZE=stop. Returns once it is frozen. */
static inline void freeze(int which)
{
    const char *how = getenv("FREEZE");
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    while ((task = readdir(tasks)) != NULL) {
        int tid = atoi(task->d_name);
        if (tid == 0 || tid == (int)syscall(SYS_gettid) || which-- > 0)
            continue;
        if (how != NULL && strcmp(how, "stop") == 0) {
            await_stop(tid);
        } else {
            syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
            while (!frozen)
                usleep(1000);
        }
        printf("frozen %d\n", tid);
        fflush(stdout);
        break;
    }
    closedir(tasks);
}
