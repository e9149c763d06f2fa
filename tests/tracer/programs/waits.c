/* SPDX-License-Identifier: MIT */
/* Deterministic work and calls; then, as the argument says: normal, spin (nobody sets `ready`),
 * die, or nothing more. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int ready;
static volatile unsigned long sum;

static void *set(void *argument)
{
    usleep(200000);
    ready = 1;
    return argument;
}

__attribute__((noinline)) static void work(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        sum += (unsigned long)i * 7 + (i % 3 == 0);
        if (i % 100 == 0)
            (void)getppid();
    }
}

__attribute__((noinline)) static void wait_for_it(void)
{
    while (!ready)
        sched_yield();
}

int main(int argc, char **argv)
{
    fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&ready, sizeof ready);
    work(2000);
    const char *then = argc > 1 ? argv[1] : "";
    if (strcmp(then, "die") == 0) {
        raise(SIGKILL);
    } else if (strcmp(then, "spin") == 0) {
        wait_for_it();
    } else if (strcmp(then, "normal") == 0) {
        pthread_t setter;
        pthread_create(&setter, NULL, set, NULL);
        wait_for_it();
        pthread_join(setter, NULL);
    }
    printf("%lu\n", sum);
    return 0;
}
