/* SPDX-License-Identifier: MIT */
/* What the scenes share: threads with roles, work of known length, and a crowd of innocents. */
#ifndef SERVICE_H
#define SERVICE_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include "truth.h"

static volatile uint64_t sink;

static void is(const char *role)
{
    prctl(PR_SET_NAME, role);
    LAB_ROLE(role);
}

static void must(int ok)
{
    if (!ok)
        _exit(9);
}

static void ms(double time)
{
    struct timespec left = {(time_t)(time / 1000), (long)(time * 1e6) % 1000000000};
    nanosleep(&left, NULL);
}

/* Computes for so many milliseconds of processor time. */
static void burn(double time)
{
    struct timespec now;
    double end = 0, at;
    do {
        for (int i = 0; i < 5000; i++)
            sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        at = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
        end = end ? end : at + time;
    } while (at < end);
}

static int get(int fd)
{
    unsigned char byte;
    return read(fd, &byte, 1) == 1 ? byte : -1;
}

static void put(int fd, int value)
{
    unsigned char byte = value;
    must(write(fd, &byte, 1) == 1);
}

static pthread_t start(void *(*run)(void *), void *with)
{
    pthread_t thread;
    must(!pthread_create(&thread, NULL, run, with));
    return thread;
}

/* A queue of numbers between threads. */
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    int items[64], from, to;
};

static void push(struct queue *queue, int item)
{
    pthread_mutex_lock(&queue->lock);
    queue->items[queue->to++ % 64] = item;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

static int pop(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->from == queue->to)
        pthread_cond_wait(&queue->filled, &queue->lock);
    int item = queue->items[queue->from++ % 64];
    pthread_mutex_unlock(&queue->lock);
    return item;
}

/* All roles are told: once, when the slow request came, or at the end. */
static void told(void)
{
    static int is_told;
    if (!__atomic_exchange_n(&is_told, 1, __ATOMIC_SEQ_CST))
        LAB_READY();
}

/* Those who have nothing to do with it: one that counts by the clock, two that hand on a token. */
static void *metrics(void *unused)
{
    is("metrics");
    for (int i = 0;; i++) {
        if (i == 70)
            told();
        burn(0.7);
        poll(NULL, 0, 24);
    }
    return unused;
}

static struct queue tokens[2];

static void *cache(void *number)
{
    int own = number != NULL;
    is(own ? "evictor" : "cache");
    for (;;) {
        push(&tokens[!own], 1);
        pop(&tokens[own]);
        ms(3);
    }
    return NULL;
}

static void crowd(void)
{
    start(metrics, NULL);
    start(cache, NULL);
    start(cache, tokens);
}

/* A child process with this role, which ends with its parent. */
static int child(const char *role)
{
    pid_t parent = getpid(), pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        is(role);
    }
    return pid == 0;
}

/* A process that asks: a byte each `pause` ms, and reads the answer. Returns the server's end. */
__attribute__((unused)) static int clients(int count, double pause)
{
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if (child("client")) {
        close(ends[0]);
        for (int i = 1; i <= count; i++) {
            put(ends[1], i);
            get(ends[1]);
            ms(pause);
        }
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

struct scene {
    const char *name;
    void (*run)(void);
};

/* Plays the scene of this name beside the crowd. */
static int play(const struct scene *scenes, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(scenes[i].name, name)) {
            is("service");
            crowd();
            scenes[i].run();
            told();
            return 0;
        }
    return 2;
}
#endif
