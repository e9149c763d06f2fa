/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <unistd.h>
pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, cm = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t c = PTHREAD_COND_INITIALIZER, d = PTHREAD_COND_INITIALIZER;
int ready, done;
void *holder(void *a)
{
    pthread_mutex_lock(&m);
    pthread_mutex_lock(&cm);
    while (!ready)
        pthread_cond_wait(&c, &cm);
    return 0;
}
void *worker(void *a)
{
    usleep(200000);
    pthread_mutex_lock(&m);
    ready = 1;
    pthread_cond_signal(&c);
    return 0;
}
int main(void)
{
    pthread_t t;
    pthread_create(&t, 0, holder, 0);
    for (int i = 0; i < 3; i++)
        pthread_create(&t, 0, worker, 0);
    pthread_mutex_t z = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&z);
    while (!done)
        pthread_cond_wait(&d, &z);
}
