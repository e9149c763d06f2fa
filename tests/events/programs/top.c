/* SPDX-License-Identifier: MIT */
/* Known waits and delays. Prints `NAME TID` for each role.
 *
 * `sleeper` sleeps SLEEPS times in nap(), which outer() calls; `timed` waits on a condition that
 * times out, once; `stuck` reads a pipe into which nobody writes until the program ends. Two
 * threads on one CPU compute `turns` until both have been held up often. It begins when its code
 * can be known. */
#include "asleep.h"
#include <errno.h>
#include <sched.h>
#include <sys/resource.h>

enum { SLEEPS = 5, SLEEP_MS = 20, HELD_UP = 10, KNOWN_US = 600000 };

static int pipe_ends[2];
static volatile pid_t stuck_tid;
static pthread_barrier_t both;
static volatile int held_up;

static void role(const char *name) { printf("%s %ld\n", name, syscall(SYS_gettid)); }

__attribute__((noinline)) void nap(void)
{
    struct timespec wait = {.tv_nsec = SLEEP_MS * 1000000L};
    nanosleep(&wait, 0);
    asm volatile("" ::: "memory");
}

__attribute__((noinline)) void outer(void)
{
    for (int i = 0; i < SLEEPS; i++)
        nap();
    asm volatile("" ::: "memory");
}

static void *sleeper(void *unused)
{
    role("sleeper");
    outer();
    return unused;
}

static void *timed(void *unused)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    role("timed");
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += SLEEP_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&lock);
    while (pthread_cond_timedwait(&never, &lock, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *stuck(void *unused)
{
    char byte;
    role("stuck");
    stuck_tid = syscall(SYS_gettid);
    if (read(pipe_ends[0], &byte, 1) != 1)
        abort();
    return unused;
}

static void *turns(void *name)
{
    struct rusage used;
    long before;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    if (pthread_setaffinity_np(pthread_self(), sizeof one, &one))
        abort();
    role(name);
    pthread_barrier_wait(&both);
    getrusage(RUSAGE_THREAD, &used);
    before = used.ru_nivcsw;
    for (int was = 0; held_up < 2;) {
        for (volatile int i = 0; i < 1000000; i++) {
        }
        getrusage(RUSAGE_THREAD, &used);
        if (!was && used.ru_nivcsw >= before + HELD_UP) {
            was = 1;
            __sync_fetch_and_add(&held_up, 1);
        }
    }
    return 0;
}

int main(void)
{
    pthread_t all[3], pair[2];
    setvbuf(stdout, 0, _IOLBF, 0);
    if (pipe(pipe_ends) || pthread_barrier_init(&both, 0, 2))
        abort();
    usleep(KNOWN_US);
    pthread_create(&all[0], 0, sleeper, 0);
    pthread_create(&all[1], 0, timed, 0);
    pthread_create(&all[2], 0, stuck, 0);
    pthread_create(&pair[0], 0, turns, "one");
    pthread_create(&pair[1], 0, turns, "other");
    pthread_join(pair[0], 0);
    pthread_join(pair[1], 0);
    pthread_join(all[0], 0);
    pthread_join(all[1], 0);
    while (!stuck_tid)
        usleep(LOOK_US);
    until_sleeping(stuck_tid, SYS_read);
    return 0; /* `stuck` is still in its read */
}
