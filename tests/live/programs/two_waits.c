/* SPDX-License-Identifier: MIT */
/* Two threads that wait for two words. In normal mode both are set; in spin mode neither is. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int first_word, second_word;

static void *wait_for_first(void *unused)
{
    while (!first_word)
        sched_yield();
    return unused;
}

static void *wait_for_second(void *unused)
{
    while (!second_word)
        sched_yield();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, wait_for_first, NULL);
    pthread_create(&threads[1], NULL, wait_for_second, NULL);
    usleep(100000);
    if (argc > 1 && strcmp(argv[1], "spin") != 0) {
        first_word = 1;
        second_word = 1;
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return 0;
}
