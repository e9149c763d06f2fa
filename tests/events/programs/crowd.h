/* SPDX-License-Identifier: MIT */
/* Threads of a program that have nothing to do with its hang, and would be easy to blame: with
 * CROWD in the environment, one computes and sleeps in turn, one sleeps and looks over and over,
 * one waits for ever, two wake each other. */
#include "roles.h"
#include <poll.h>

enum { DRAWN_US = 9000, SHOWN_US = 10000, LOOKED_MS = 5, TALKED_US = 700 };

static pthread_mutex_t of_crowd = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int heard[2][2];

static void *animate(void *unused)
{
    for (;; usleep(SHOWN_US)) {
        struct timespec now;
        int64_t until = 0, at;
        do {
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
            at = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
            until = until ? until : at + DRAWN_US;
        } while (at < until);
    }
    return unused;
}

static void *look(void *unused)
{
    for (;;)
        poll(NULL, 0, LOOKED_MS);
    return unused;
}

static void *idle(void *unused)
{
    pthread_mutex_lock(&of_crowd);
    for (;;)
        pthread_cond_wait(&never, &of_crowd);
    return unused;
}

static void *talk(void *other)
{
    int own = other != NULL;
    char byte = 0;
    do
        usleep(TALKED_US);
    while (write(heard[!own][1], &byte, 1) == 1 && read(heard[own][0], &byte, 1) == 1);
    return other;
}

static void come_together(void)
{
    void *(*const ways[])(void *) = {animate, look, idle, talk, talk};
    if (!getenv("CROWD"))
        return;
    if (pipe(heard[0]) || pipe(heard[1]))
        abort();
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, ways[i], i == 4 ? &heard : NULL))
            abort();
    }
}
