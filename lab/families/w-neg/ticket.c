// Three threads take turns by a ticket lock, and yield while they wait. They get on.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
atomic_uint next_ticket, serving; unsigned long total, data[4096];
static void *work(void *arg) {
    for (unsigned long n = 0;; n++) {
        unsigned mine = atomic_fetch_add(&next_ticket, 1);
        while (atomic_load(&serving) != mine) sched_yield();
        for (int i = 0; i < 2000; i++) data[(n * 7 + i) % 4096] ^= n + i;
        total++;
        atomic_fetch_add(&serving, 1);
    }
    return arg;
}
int main(void) { pthread_t t; for (int i = 0; i < 2; i++) pthread_create(&t, 0, work, 0); work(0); }
