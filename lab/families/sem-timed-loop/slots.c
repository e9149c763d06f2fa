/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>
#include <truth.h>

static sem_t slots;
static pid_t child;

static void *reap(void *argument)
{
    LAB_ROLE("reaper");
    waitpid(child, NULL, 0);
    sem_post(&slots);
    return argument;
}

int main(void)
{
    pthread_t reaper;
    sem_init(&slots, 0, 0);
    child = fork();
    if (child == 0) {
        LAB_ROLE("child");
        for (;;)
            sleep(100000);
    }
    pthread_create(&reaper, NULL, reap, NULL);
    usleep(100000);
    LAB_ROLE("waiter");
    LAB_READY();
    for (;;) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 1;
        if (sem_timedwait(&slots, &limit) == 0)
            return 0;
        fputs("still no slot\n", stderr);
    }
}
