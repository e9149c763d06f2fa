/* SPDX-License-Identifier: MIT */
/* Threads that spin, compute under a lock, wait, and get signals; on "end" it tells how often
 * anything was wrong. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

static volatile int never, done;
static volatile sig_atomic_t alarms;
static volatile int wrong, napping;
static volatile long rounds[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long shared[2];

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void *spin(void *unused)
{
    while (!never && !done)
        sched_yield();
    return unused;
}

/* Two of these: what one has begun the other must not see. */
static void *compute(void *number)
{
    while (!done) {
        pthread_mutex_lock(&lock);
        if (shared[0] != shared[1])
            wrong++;
        shared[0]++;
        for (volatile int i = 0; i < 500; i++)
            ;
        shared[1]++;
        pthread_mutex_unlock(&lock);
        (*(volatile long *)number)++;
        sched_yield();
    }
    return number;
}

/* Other threads get the signals. So if poll returns EINTR, a tracer is at fault. */
static void *nap(void *unused)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    napping = 1;
    while (!done)
        if (poll(NULL, 0, 7) != 0)
            wrong++;
    return unused;
}

int main(void)
{
    void *(*work[])(void *) = {spin, compute, compute, nap};
    pthread_t threads[4];
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 20000}, {0, 20000}};
    char line[16];
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work[i], (void *)&rounds[i % 2]);
    while (!napping) /* its mask is what it stays */
        sched_yield();
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "count\n") == 0) {
        printf("%d %ld %ld\n", (int)alarms, rounds[0], rounds[1]);
        fflush(stdout);
    }
    done = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", wrong + (shared[0] != rounds[0] + rounds[1]));
    return 0;
}
