/* SPDX-License-Identifier: MIT */
/* Sixteen threads that start at once and meet. */
#include <pthread.h>

#define THREADS 16

static pthread_barrier_t all_here;

static void *meet(void *unused)
{
    pthread_barrier_wait(&all_here);
    return unused;
}

int main(void)
{
    pthread_t ids[THREADS];
    pthread_barrier_init(&all_here, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, meet, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
