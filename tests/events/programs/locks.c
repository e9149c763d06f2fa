/* SPDX-License-Identifier: MIT */
/* Waits for locks and conditions for known reasons. Prints `NAME TID` for each role.
 *
 * contention: main waits for a lock whose holder computes.
 * inversion: main waits for a lock whose holder is less urgent, and has its CPU taken by others
 *   that compute. All on one CPU.
 * unwoken: the same, and the holder is not woken once between its becoming less urgent and its
 *   unlocking.
 * handoff: a condition is signalled by a thread that computes first. */
#include "asleep.h"
#include "crowd.h"
#include <sched.h>
#include <sys/resource.h>

enum { LOADED_US = 200000, WORK_MS = 40, BACKGROUND = 3, BASE = -15, RIVAL = 5, LESS_URGENT = 15 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t together;
static volatile int done;
static int late_nice; /* the holder becomes less urgent only when it has the lock */
static volatile uint64_t sink;
static int base; /* main's nice value: of other programs none is as urgent as the rivals */

/* Not inlined, as its name is looked for. */
__attribute__((noinline)) static void compute_for_a_while(void)
{
    struct timespec now;
    uint64_t end = 0, at;
    do {
        for (int i = 0; i < 10000; i++)
            sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        at = now.tv_sec * 1000ull + now.tv_nsec / 1000000;
        end = end ? end : at + WORK_MS;
    } while (at < end);
}

/* The calling thread's nice value: `more` above that of main. */
static void be_nice(int more)
{
    if (setpriority(PRIO_PROCESS, syscall(SYS_gettid), base + more))
        abort();
}

static void *hold(void *nice_value)
{
    tell("holder");
    if (nice_value && !late_nice)
        be_nice((int)(intptr_t)nice_value);
    usleep(1000); /* a wake tells the priority */
    pthread_mutex_lock(&lock);
    pthread_barrier_wait(&together);
    if (late_nice)
        be_nice((int)(intptr_t)nice_value);
    if (!nice_value) /* else its rivals keep it from finishing in time */
        until_sleeping(getpid(), SYS_futex);
    compute_for_a_while();
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *rival(void *number)
{
    char role[16];
    snprintf(role, sizeof role, "rival%d", (int)(intptr_t)number);
    tell(role);
    be_nice(RIVAL);
    pthread_barrier_wait(&together);
    while (!done)
        compute_for_a_while();
    return NULL;
}

static void *signal_late(void *unused)
{
    tell("holder");
    pthread_barrier_wait(&together);
    until_sleeping(getpid(), SYS_futex);
    compute_for_a_while();
    pthread_mutex_lock(&lock);
    done = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return unused;
}

__attribute__((noinline)) static void take_the_lock(void)
{
    pthread_mutex_lock(&lock);
    done = 1;
    pthread_mutex_unlock(&lock);
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    late_nice = !strcmp(mode, "unwoken");
    int inverted = late_nice || !strcmp(mode, "inversion"), threads = inverted ? 1 + BACKGROUND : 1;
    pthread_t thread[1 + BACKGROUND];
    tell("main");
    come_together();
    usleep(LOADED_US); /* in this time the recorder learns where code is */
    pthread_barrier_init(&together, NULL, threads + 1);
    if (inverted) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        if (sched_setaffinity(0, sizeof one, &one))
            abort();
        base = getpriority(PRIO_PROCESS, 0) < BASE ? getpriority(PRIO_PROCESS, 0) : BASE;
        be_nice(0);
        for (int i = 1; i <= BACKGROUND; i++)
            start(&thread[i], rival, (void *)(intptr_t)(i - 1));
    }
    if (!strcmp(mode, "handoff")) {
        start(&thread[0], signal_late, NULL);
        pthread_barrier_wait(&together);
        pthread_mutex_lock(&lock);
        while (!done)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
    } else {
        start(&thread[0], hold, (void *)(intptr_t)(inverted ? LESS_URGENT : 0));
        pthread_barrier_wait(&together);
        usleep(2000); /* the holder has its lock and computes */
        take_the_lock();
    }
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
