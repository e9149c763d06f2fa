/* SPDX-License-Identifier: MIT */
/* What tracers get wrong about calls, forks, descriptors and prefetches; argv[1] chooses. Prints
 * "ok". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, FORKS = 12 };

/* A call leaves the address behind it in rcx, or rcx as it was (processors with FRED). */
static int returned(void)
{
    for (int i = 0; i < 1000; i++) {
        long number = 39 /* getpid */, behind = 0, expected;
        __asm__ volatile("lea 1f(%%rip), %2\n\tsyscall\n1:"
                         : "+a"(number), "+c"(behind), "=&r"(expected)
                         :
                         : "r11", "memory");
        if (number != getpid() || (behind != expected && behind != 0))
            return 0;
    }
    return 1;
}

static void *fork_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit(strtol("7", NULL, 10) == 7 ? 9 : 1);
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 9)
            exit(1);
    }
    return NULL;
}

static int forks(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, fork_often, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 1;
}

/* Once stdout is closed, the pipe that it wrote to has no writer. */
static int closed(void)
{
    int ends[2], standard = dup(STDOUT_FILENO);
    char byte;
    if (pipe2(ends, O_NONBLOCK) != 0)
        return 0;
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    close(STDOUT_FILENO);
    int at_end = read(ends[0], &byte, 1) == 0;
    dup2(standard, STDOUT_FILENO);
    return at_end;
}

/* A prefetch may name any address (the mark phase of a garbage collector does): it never faults. */
static int prefetched(void)
{
    static const unsigned long addresses[] = {0, 8, 0xdead0000beefUL, ~0UL};
    for (unsigned i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
        __asm__ volatile("prefetchnta (%0)\n\tprefetcht0 8(%0)\n\tprefetcht1 (%0)\n\tprefetcht2 "
                         "(%0)\n\tprefetchw (%0)"
                         :
                         : "r"(addresses[i]));
    }
    return 1;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int ok = strcmp(what, "returned") == 0     ? returned()
             : strcmp(what, "forks") == 0      ? forks()
             : strcmp(what, "closed") == 0     ? closed()
             : strcmp(what, "prefetched") == 0 ? prefetched()
                                               : 0;
    printf(ok ? "ok\n" : "wrong\n");
    return ok ? 0 : 1;
}
