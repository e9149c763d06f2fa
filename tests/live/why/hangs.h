/* SPDX-License-Identifier: MIT */
/* What the planted hangs share. Each says on stdout who is to blame: `TRUTH kind pid tid`, 0 for no
 * certain one. */
#ifndef HANGS_H
#define HANGS_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct scenario {
    const char *name;
    void (*run)(const char *folder);
};

extern const struct scenario in_threads[], in_processes[], in_channels[], by_owners[];

static inline int own_tid(void) { return (int)syscall(SYS_gettid); }

static inline void truth(const char *kind, int pid, int tid)
{
    printf("TRUTH %s %d %d\n", kind, pid, tid);
    fflush(stdout);
}

static inline void settle(void) { usleep(150000); }

static inline void sleep_long(void)
{
    for (;;)
        sleep(100000);
}

static inline pthread_t start(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0)
        exit(3);
    settle();
    return thread;
}

static inline void new_pipe(int ends[2])
{
    if (pipe(ends) != 0)
        exit(5);
}

static inline void new_pair(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        exit(5);
}

/* The path of a FIFO in the folder. */
static inline char *new_fifo(const char *folder)
{
    char *path = malloc(4096);
    snprintf(path, 4096, "%s/fifo", folder);
    if (mkfifo(path, 0600) != 0 && errno != EEXIST)
        exit(5);
    return path;
}

static inline void read_one(int fd)
{
    char byte;
    if (read(fd, &byte, 1) < 0)
        exit(4);
}
#endif
