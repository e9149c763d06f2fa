/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include <truth.h>

static struct {
    atomic_uint next;
    char space[60];
    atomic_uint serving;
} lock;
static long total;

static void take(void)
{
    unsigned mine = atomic_fetch_add(&lock.next, 1);
    while (atomic_load_explicit(&lock.serving, memory_order_acquire) != mine)
        __builtin_ia32_pause();
}

static void give(void) { atomic_fetch_add(&lock.serving, 1); }

static void __attribute__((noinline)) write_back(void) { sleep(100000); }

static void *owner(void *argument)
{
    LAB_ROLE("owner");
    take();
    total++;
    write_back();
    give();
    return argument;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, owner, NULL);
    usleep(200000);
    LAB_ROLE("waiter");
    LAB_WORD("serving", &lock.serving, 4);
    LAB_READY();
    take();
    total++;
    give();
    sleep(5);
    return 0;
}
