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
static pthread_t waiting;

/* It never leaves its loop by what comes: it takes that, and looks again. */
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

/* What is read makes the count go up; the end of it stops the server. */
static void hand_out(void)
{
    char byte;
    while (read(0, &byte, 1) == 1)
        count++;
    stop = 1;
}

static void *wait_for_either(void *unused)
{
    while (!stop && !count)
        sched_yield();
    return unused;
}

/* The first only counts up what came; it would stop the server only once that one has ended. */
static void join_first(void)
{
    pthread_join(waiting, NULL);
    stop = 1;
}

static void *count_up(void *unused)
{
    char byte;
    while (read(0, &byte, 1) == 1)
        count++;
    return unused;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    pthread_t other;
    fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&count, sizeof count);
    if (strcmp(way, "served") == 0) {
        pthread_create(&waiting, NULL, serve, NULL);
        hand_out();
    } else if (strcmp(way, "joined") == 0) {
        pthread_create(&waiting, NULL, wait_for_either, NULL);
        pthread_create(&other, NULL, count_up, NULL);
        join_first();
    } else {
        pthread_create(&waiting, NULL, wait_for_either, NULL);
        for (;;)
            pause();
    }
    return 0;
}
