/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <truth.h>

enum { READERS = 4 };
static struct {
    atomic_ulong epoch; /* 0: not in a critical section */
    char space[56];
} readers[READERS];
static atomic_ulong global = 1;
static int *_Atomic page;

static void __attribute__((noinline)) load_page(void) { sleep(100000); }

static void *read_pages(void *argument)
{
    int number = (int)(long)argument;
    char name[16];
    snprintf(name, sizeof name, "reader%d", number);
    LAB_ROLE(name);
    for (long round = 0;; round++) {
        atomic_store(&readers[number].epoch, atomic_load(&global));
        if (*atomic_load(&page) < 0)
            return NULL;
        if (number == 2 && round == 3)
            load_page();
        atomic_store(&readers[number].epoch, 0);
        usleep(20000);
    }
}

static void replace(int *with)
{
    int *old = atomic_exchange(&page, with);
    unsigned long now = atomic_fetch_add(&global, 1) + 1;
    for (int number = 0; number < READERS; number++)
        for (;;) {
            unsigned long seen = atomic_load(&readers[number].epoch);
            if (seen == 0 || seen >= now)
                break;
            sched_yield();
        }
    free(old);
}

int main(void)
{
    page = calloc(1, sizeof(int));
    pthread_t thread;
    for (long number = 0; number < READERS; number++)
        pthread_create(&thread, NULL, read_pages, (void *)number);
    usleep(300000);
    LAB_ROLE("waiter");
    LAB_WORD("slot", &readers[2].epoch, 8);
    LAB_READY();
    replace(calloc(1, sizeof(int)));
    sleep(5);
    return 0;
}
