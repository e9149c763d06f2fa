/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_barrier_t start;
static void *worker(void *p)
{
    long n = (long)p;
    usleep(20000 * n);
    pthread_barrier_wait(&start);
    return NULL;
}
static void *heartbeat(void *p)
{
    (void)p;
    for (;;)
        usleep(250000);
}
int main(void)
{
    pthread_barrier_init(&start, 0, 5);
    pthread_t t[4];
    pthread_attr_t bad;
    pthread_attr_init(&bad);
    pthread_attr_setstacksize(&bad, 1UL << 46);
    pthread_t h;
    pthread_create(&h, 0, heartbeat, 0);
    pthread_setname_np(h, "heartbeat");
    for (long i = 0; i < 4; i++)
        pthread_create(&t[i], i == 3 ? &bad : 0, worker, (void *)i);
    pthread_barrier_wait(&start);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], 0);
}
