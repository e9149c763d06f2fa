/* SPDX-License-Identifier: MIT */
/* A loop that only the function it calls leaves, by ending the thread: left_below normal|spin. */
#include "../../../samples/announce.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

static int ended;
static volatile unsigned long looks;

__attribute__((noinline)) static void look(void)
{
    looks++;
    if (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) != 0)
        pthread_exit(NULL);
    sched_yield();
}

static void *serve(void *unused)
{
    for (;;)
        look();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    announce_flag(&ended, sizeof ended);
    pthread_create(&thread, NULL, serve, NULL);
    while (looks < 20)
        usleep(1000);
    if (argc < 2 || strcmp(argv[1], "spin") != 0)
        __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    return 0;
}
