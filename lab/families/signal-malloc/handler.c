/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <signal.h>
#include <truth.h>

static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
static char arena[1 << 16];
static size_t used;
static volatile int asked;

static void *allocate(size_t size)
{
    pthread_mutex_lock(&heap);
    void *found = arena + used;
    used += size;
    if (asked++ == 3)
        raise(SIGUSR1); /* it comes at the worst of moments */
    pthread_mutex_unlock(&heap);
    return found;
}

static void on_signal(int number)
{
    char *text = allocate(32);
    snprintf(text, 32, "signal %d", number);
}

int main(void)
{
    signal(SIGUSR1, on_signal);
    LAB_ROLE("waiter");
    LAB_READY();
    for (int round = 0; round < 10; round++)
        allocate(100);
    return 0;
}
