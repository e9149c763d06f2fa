/* SPDX-License-Identifier: MIT */
/* native KIND RUN: main polls a word of this kind (global, heap, stack), which the thread "writer"
 * sets. In the good run it comes to that; in the bad one it reads stdin for ever. In the run
 * `unwritten` main stops by itself, and nobody sets the word. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job {
    char name[40];
    volatile int state;
};

static volatile int done;
static struct job *job;
static volatile int *word;
static int bad, unwritten;

__attribute__((noinline)) static void give(volatile int *to)
{
    *to = 7;
}

static void *writer(void *unused)
{
    char byte;
    pthread_setname_np(pthread_self(), "writer");
    if (bad && read(0, &byte, 1) != 1)
        return unused;
    usleep(300000);
    if (unwritten)
        return unused;
    give(word);
    return unused;
}

static void *idle(void *unused)
{
    pthread_setname_np(pthread_self(), "idle");
    for (;;)
        pause();
    return unused;
}

static void start(void *(*body)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL) != 0)
        abort();
}

static int is_over(long *rounds)
{
    return unwritten && ++*rounds > 3000;
}

__attribute__((noinline)) static void wait_for_global(void)
{
    long rounds = 0;
    while (done == 0 && !is_over(&rounds))
        sched_yield();
}

__attribute__((noinline)) static void wait_for_job(struct job *of)
{
    long rounds = 0;
    while (of->state == 0 && !is_over(&rounds))
        sched_yield();
}

__attribute__((noinline)) static void wait_for_word(volatile int *at)
{
    long rounds = 0;
    while (*at == 0 && !is_over(&rounds))
        sched_yield();
}

static void *waits_on_its_stack(void *unused)
{
    volatile int mine = 0;
    pthread_setname_np(pthread_self(), "waiter");
    word = &mine;
    start(writer);
    wait_for_word(&mine);
    return unused;
}

int main(int count, char **words)
{
    pthread_t waiter;
    if (count != 3)
        return 2;
    bad = strcmp(words[2], "bad") == 0;
    unwritten = strcmp(words[2], "unwritten") == 0;
    start(idle);
    if (strcmp(words[1], "global") == 0) {
        word = &done;
        start(writer);
        wait_for_global();
    } else if (strcmp(words[1], "heap") == 0) {
        job = calloc(1, sizeof *job);
        word = &job->state;
        start(writer);
        wait_for_job(job);
    } else {
        if (pthread_create(&waiter, NULL, waits_on_its_stack, NULL) != 0)
            return 3;
        pthread_join(waiter, NULL);
    }
    return 0;
}
