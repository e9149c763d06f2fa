/* SPDX-License-Identifier: MIT */
/* A thread that waits for `never`, so that its copy shows it (alone), or does not: copies WAY. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <ucontext.h>
#include <unistd.h>

volatile int never;
static volatile unsigned long others;
static ucontext_t outside, inside;
static char stack[1 << 20];

static void *move(void *unused)
{
    for (;;)
        others++;
    return unused;
}

static void wait_alone(void)
{
    while (!never)
        sched_yield();
}

static void wait_beside_another(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, move, NULL) != 0)
        exit(1);
    while (!never && others != 1)
        sched_yield();
}

static void *rest(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/* Each round looks through a table, for some 100,000 instructions. Another thread might write. */
static void wait_and_look(void)
{
    static volatile unsigned table[256];
    pthread_t thread;
    if (pthread_create(&thread, NULL, rest, NULL) != 0)
        exit(1);
    while (!never)
        for (unsigned step = 0; step < 20000; step++)
            if (table[step % 256] != 0)
                exit(1);
}

/* Each round computes for as long: it is work, which asks whether it is to stop. */
static void wait_and_compute(void)
{
    static unsigned table[256];
    while (!never)
        for (unsigned step = 0, place = 1; step < 12000; step++) {
            place = place * 1664525u + 1013904223u;
            table[place >> 24] += place;
        }
}

/* Between its looks it takes another number by chance, as who backs off does. */
static void wait_and_back_off(void)
{
    static volatile unsigned long last;
    unsigned long number = 88172645463325252ul;
    for (;;) {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        for (int looks = 0; looks < 2000000; looks++)
            if (never)
                return;
        last = number;
    }
}

/* It puts a timer off in each round, which always succeeds, and works. */
static void work_and_put_off(void)
{
    static volatile unsigned long sum;
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    const struct itimerspec later = {.it_value = {.tv_sec = 60}};
    while (timerfd_settime(timer, 0, &later, NULL) == 0)
        for (int step = 0; step < 30; step++)
            sum += step;
}

/* A copy is not told how its thread is scheduled. */
static void wait_and_ask(void)
{
    while (!never)
        if (sched_getscheduler(0) < 0)
            exit(1);
}

static void task(void)
{
    while (!never)
        swapcontext(&inside, &outside);
}

static void wait_in_task(void)
{
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    inside.uc_link = &outside;
    makecontext(&inside, task, 0);
    while (!never)
        swapcontext(&outside, &inside);
}

/* Each of three threads gets the lock again and again, and works while it holds it. */
static void *take_turns(void *unused)
{
    static int lock;
    static volatile unsigned table[256];
    for (unsigned place = 1;;) {
        while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
            sched_yield();
        for (unsigned step = 0; step < 2000; step++) {
            place = place * 1664525u + 1013904223u;
            table[place >> 24] += place;
        }
        __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    }
    return unused;
}

static void wait_by_turns(void)
{
    pthread_t threads[2];
    for (int number = 0; number < 2; number++)
        if (pthread_create(&threads[number], NULL, take_turns, NULL) != 0)
            exit(1);
    take_turns(NULL);
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "";
    if (strcmp(way, "alone") == 0)
        wait_alone();
    if (strcmp(way, "moved") == 0)
        wait_beside_another();
    if (strcmp(way, "looks") == 0)
        wait_and_look();
    if (strcmp(way, "computes") == 0)
        wait_and_compute();
    if (strcmp(way, "backs-off") == 0)
        wait_and_back_off();
    if (strcmp(way, "puts-off") == 0)
        work_and_put_off();
    if (strcmp(way, "turns") == 0)
        wait_by_turns();
    if (strcmp(way, "asks") == 0)
        wait_and_ask();
    if (strcmp(way, "switches") == 0)
        wait_in_task();
    return 0;
}
