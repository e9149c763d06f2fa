/* SPDX-License-Identifier: MIT */
/* A loop that ends in one of three ways. Its helper will do the third, in an hour; nobody does the
 * others. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

struct shared {
    int closed, error, count, wanted;
};

static void *helper(void *given)
{
    struct shared *shared = given;
    sleep(3600);
    shared->count++;
    return NULL;
}

__attribute__((noinline)) static int wait_for(volatile struct shared *shared)
{
    for (;;) {
        if (shared->closed)
            return 1;
        if (shared->error)
            return 2;
        if (shared->count >= shared->wanted)
            return 3;
        sched_yield();
    }
}

int main(void)
{
    struct shared *shared = calloc(1, sizeof *shared);
    pthread_t thread;
    if (!shared)
        return 1;
    shared->wanted = 1;
    pthread_create(&thread, NULL, helper, shared);
    return wait_for(shared);
}
