/* SPDX-License-Identifier: MIT */
/* A thread that would go on by either of two words. The argument says who owes them. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int stop;
static volatile unsigned count;
static volatile unsigned long handled;
static volatile unsigned char all[4096];
static pthread_t waiting;

/* It does not leave its loop when something comes: it takes that, and looks again. */
static void *serve(void *unused)
{
    unsigned taken = 0;
    while (!stop) {
        if (count != taken) {
            taken++;
            handled += taken;
        } else {
            sched_yield();
        }
    }
    return unused;
}

static void *wait_for_either(void *unused)
{
    while (!stop && !count)
        sched_yield();
    return unused;
}

static void *count_up(void *unused)
{
    char byte;
    while (read(0, &byte, 1) == 1)
        count++;
    return unused;
}

/* Each read raises the count; the end of the input stops the server. */
static void served(void)
{
    pthread_create(&waiting, NULL, serve, NULL);
    count_up(NULL);
    stop = 1;
}

/* The thread is stopped only once it has ended. */
static void joined(void)
{
    pthread_t counting;
    pthread_create(&waiting, NULL, wait_for_either, NULL);
    pthread_create(&counting, NULL, count_up, NULL);
    pthread_join(waiting, NULL);
    stop = 1;
}

static void *wait_for_one_of_all(void *unused)
{
    while (!all[100])
        sched_yield();
    return unused;
}

static void *(*volatile fill)(void *, int, size_t) = memset;

__attribute__((noinline)) static void raise_all(void)
{
    fill((void *)all, 1, sizeof all);
    handled++;
}

/* A routine of the C library writes for its caller. */
static void by_library(void)
{
    char byte;
    pthread_create(&waiting, NULL, wait_for_one_of_all, NULL);
    if (read(0, &byte, 1) == 1)
        raise_all();
}

static void nobody(void)
{
    pthread_create(&waiting, NULL, wait_for_either, NULL);
    for (;;)
        pause();
}

/* Called by pointer, so that a thread on one way has no code of another way ahead. */
static void (*volatile ways[])(void) = {served, joined, by_library, nobody};

int main(int argc, char **argv)
{
    static const char *const names[] = {"served", "joined", "by_library", "nobody"};
    fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&count, sizeof count);
    for (int way = 0; way < 4; way++) {
        if (argc > 1 && strcmp(argv[1], names[way]) == 0)
            ways[way]();
    }
    return 0;
}
