/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <truth.h>

typedef void listener(int);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static listener *listeners[8];
static int count;

static void __attribute__((noinline)) add_listener(listener *one)
{
    pthread_mutex_lock(&lock);
    listeners[count++] = one;
    pthread_mutex_unlock(&lock);
}

static void fire(int event)
{
    pthread_mutex_lock(&lock);
    for (int index = 0; index < count; index++)
        listeners[index](event);
    pthread_mutex_unlock(&lock);
}

static void second(int event) { printf("%d\n", event); }

static void first(int event)
{
    if (event == 3)
        add_listener(second);
}

static void *tick(void *argument)
{
    LAB_ROLE("clock");
    for (;;)
        usleep(50000);
    return argument;
}

int main(void)
{
    pthread_t clock;
    pthread_create(&clock, NULL, tick, NULL);
    usleep(100000);
    add_listener(first);
    LAB_ROLE("waiter");
    LAB_READY();
    fire(3);
    return 0;
}
