/* SPDX-License-Identifier: MIT */
/* Quiescence as in user-space RCU: each reader has an epoch in its own thread-local storage and
 * registers its address; the updater polls all of them. In spin mode a reader blocks in read(2)
 * inside its critical section. */
#include "announce.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READERS 3

struct reader_state {
    unsigned long visits;
    unsigned long active;
};

static __thread struct reader_state my_state;
static struct reader_state *readers[READERS];
static int input[2];
static int hang;
static int stop;
static pthread_barrier_t registered;

static void *reader(void *argument)
{
    long number = (long)argument;
    char byte;
    readers[number] = &my_state;
    pthread_barrier_wait(&registered);
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&my_state.active, 1, __ATOMIC_SEQ_CST);
        my_state.visits++;
        free(malloc(100 + my_state.visits % 50));
        usleep(3000);
        if (number == 1 && my_state.visits == 20)
            announce_flag(&my_state.active, sizeof my_state.active);
        if (hang && number == 1 && my_state.visits == 20 && read(input[0], &byte, 1) != 1)
            return NULL;
        __atomic_store_n(&my_state.active, 0, __ATOMIC_SEQ_CST);
        usleep(1000);
    }
    return NULL;
}

__attribute__((noinline)) static void synchronize(void)
{
    for (int number = 0; number < READERS; number++)
        while (__atomic_load_n(&readers[number]->active, __ATOMIC_ACQUIRE))
            sched_yield();
}

int main(int argc, char **argv)
{
    hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    pthread_t threads[READERS];
    pthread_barrier_init(&registered, NULL, READERS + 1);
    if (pipe(input) != 0)
        return 1;
    for (long number = 0; number < READERS; number++)
        pthread_create(&threads[number], NULL, reader, (void *)number);
    pthread_barrier_wait(&registered);
    for (int update = 0; update < 60; update++) {
        synchronize();
        usleep(4000);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int number = 0; number < READERS; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
