/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <truth.h>

static pthread_barrier_t phase;

static void *work(void *argument)
{
    long number = (long)argument;
    if (number == 3)
        return NULL; /* nothing to do for this one */
    if (number == 1)
        LAB_ROLE("waiter");
    pthread_barrier_wait(&phase);
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    pthread_barrier_init(&phase, NULL, 4);
    for (long number = 0; number < 4; number++)
        pthread_create(&threads[number], NULL, work, (void *)number);
    usleep(200000);
    LAB_READY();
    for (int number = 0; number < 4; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
