/* SPDX-License-Identifier: MIT */
/* Requests that are answered ROUNDS times as they should, and once late. Prints `main TID` and
 * `culprit TID`.
 *
 * chain WHAT [sockets]: main -> two servers -> a third, each a process, joined by pipes (or
 *   sockets); the third computes, sleeps or polls.
 * lock: main waits for a lock, whose holder waits for a condition, whose signaller computes.
 * alone: main computes. named: so it does, under a name full of markup.
 * circle: main waits for a lock that another thread holds, which waits for one that main holds; a
 *   time limit ends it.
 * two: main asks two threads in turn, and waits for their answers in one poll; one of them
 *   computes, and never answers. */
#include "crowd.h"
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 15, HANG = 12, SERVERS = 3, WORK_US = 2000, HANG_MS = 400, LOADED_US = 200000 };

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t together;
static int computed;
static volatile uint64_t sink;

static uint64_t now_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

static void compute(void)
{
    uint64_t end = now_ms(CLOCK_THREAD_CPUTIME_ID) + HANG_MS;
    while (now_ms(CLOCK_THREAD_CPUTIME_ID) < end)
        for (int i = 0; i < 100000; i++)
            sink += i;
}

__attribute__((noinline)) static void be_late(const char *what)
{
    if (!strcmp(what, "computes"))
        compute();
    else if (!strcmp(what, "sleeps"))
        usleep(HANG_MS * 1000);
    else if (!strcmp(what, "polls"))
        for (int i = 0; i < HANG_MS / 10; i++)
            usleep(10000);
}

__attribute__((noinline)) static void chain(const char *what, int has_sockets)
{
    int pipes[SERVERS + 1][2];
    for (int i = 0; i <= SERVERS; i++)
        if (has_sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, pipes[i]) : pipe(pipes[i]))
            abort();
    for (int i = 0; i < SERVERS; i++) {
        if (fork())
            continue;
        int last = i == SERVERS - 1;
        tell(last ? "culprit" : i ? "second" : "first");
        uint32_t round;
        for (int n = 0; n < ROUNDS; n++) {
            if (read(pipes[i][0], &round, sizeof round) <= 0)
                abort();
            usleep(WORK_US);
            if (last && round == HANG)
                be_late(what);
            if (write(pipes[i + 1][1], &round, sizeof round) <= 0)
                abort();
        }
        _exit(0);
    }
    for (uint32_t round = 0; round < ROUNDS; round++)
        if (write(pipes[0][1], &round, sizeof round) <= 0 ||
            read(pipes[SERVERS][0], &round, sizeof round) <= 0)
            abort();
    while (wait(NULL) > 0)
        ;
}

static void *hold(void *unused)
{
    tell("holder");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&first);
        pthread_barrier_wait(&together);
        pthread_mutex_lock(&inner);
        while (computed <= round)
            pthread_cond_wait(&ready, &inner);
        pthread_mutex_unlock(&inner);
        pthread_mutex_unlock(&first);
        pthread_barrier_wait(&together);
    }
    return unused;
}

static void *signal_late(void *unused)
{
    tell("culprit");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&together);
        usleep(WORK_US);
        if (round == HANG)
            compute();
        pthread_mutex_lock(&inner);
        computed = round + 1;
        pthread_mutex_unlock(&inner);
        pthread_cond_signal(&ready);
        pthread_barrier_wait(&together);
    }
    return unused;
}

static void wait_for_lock(void)
{
    pthread_t threads[2];
    pthread_barrier_init(&together, NULL, 3);
    start(&threads[0], hold, NULL);
    start(&threads[1], signal_late, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&together);
        pthread_mutex_lock(&first);
        pthread_mutex_unlock(&first);
        pthread_barrier_wait(&together);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* In each round but one it lets go of `second` in time, and takes `first` only once main has let go
 * of it. */
static void *cross(void *unused)
{
    tell("culprit");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&second);
        pthread_barrier_wait(&together);
        usleep(WORK_US);
        if (round != HANG)
            pthread_mutex_unlock(&second);
        pthread_mutex_lock(&first);
        pthread_mutex_unlock(&first);
        if (round == HANG)
            pthread_mutex_unlock(&second);
        pthread_barrier_wait(&together);
    }
    return unused;
}

static void circle(void)
{
    pthread_t thread;
    pthread_barrier_init(&together, NULL, 2);
    start(&thread, cross, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&first);
        pthread_barrier_wait(&together);
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_nsec += HANG_MS * 1000000l;
        limit.tv_sec += limit.tv_nsec / 1000000000;
        limit.tv_nsec %= 1000000000;
        if (!pthread_mutex_timedlock(&second, &limit))
            pthread_mutex_unlock(&second);
        usleep(WORK_US);
        pthread_mutex_unlock(&first);
        pthread_barrier_wait(&together);
    }
    pthread_join(thread, NULL);
}

static int requests[2][2], replies[2];

static void *answer(void *which)
{
    int number = *(int *)which;
    tell(number == HANG % 2 ? "culprit" : "other");
    int round;
    while (read(requests[number][0], &round, sizeof round) == sizeof round) {
        usleep(WORK_US);
        if (round == HANG)
            compute();
        else if (write(replies[1], &round, sizeof round) < 0)
            abort();
    }
    return NULL;
}

static void ask(int number, int round)
{
    if (write(requests[number][1], &round, sizeof round) < 0)
        abort();
}

static void ask_two(void)
{
    pthread_t threads[2];
    int numbers[2] = {0, 1};
    if (pipe(requests[0]) || pipe(requests[1]) || pipe(replies))
        abort();
    for (int i = 0; i < 2; i++)
        start(&threads[i], answer, &numbers[i]);
    for (int round = 0; round <= HANG; round++) {
        struct pollfd reply = {replies[0], POLLIN, 0};
        ask(round % 2, round);
        int answered = 0;
        if (poll(&reply, 1, round == HANG ? HANG_MS : -1) > 0 &&
            read(replies[0], &answered, sizeof answered) < 0)
            abort();
    }
    _exit(0); /* no other wait that the hang could be taken for */
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    tell("main");
    come_together();
    usleep(LOADED_US); /* meanwhile the recorder learns where code is */
    if (!strcmp(mode, "chain") && count > 2)
        chain(words[2], count > 3 && !strcmp(words[3], "sockets"));
    else if (!strcmp(mode, "lock"))
        wait_for_lock();
    else if (!strcmp(mode, "alone"))
        compute();
    else if (!strcmp(mode, "named") && !prctl(PR_SET_NAME, "<b>&</script>"))
        compute();
    else if (!strcmp(mode, "circle"))
        circle();
    else if (!strcmp(mode, "two"))
        ask_two();
    else
        return 2;
    return 0;
}
