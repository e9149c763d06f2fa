/* SPDX-License-Identifier: MIT */
/* Two threads that each hold a mutex and wait for the other's. */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER, right = PTHREAD_MUTEX_INITIALIZER;

static void *other(void *unused)
{
    pthread_mutex_lock(&right);
    usleep(100000);
    pthread_mutex_lock(&left);
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_mutex_lock(&left);
    pthread_create(&thread, NULL, other, NULL);
    usleep(100000);
    pthread_mutex_lock(&right);
    return 0;
}
