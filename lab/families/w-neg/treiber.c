// A stack without locks: threads push and pop, and try again where another was faster.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#define N 64
struct { atomic_uint next; unsigned value; } node[N];
_Atomic uint64_t top; // version, index
atomic_ulong moves[3];
static void push(unsigned i) { uint64_t old = atomic_load(&top), new;
    do { atomic_store(&node[i].next, (unsigned)old); new = ((old >> 32) + 1) << 32 | i; } while (!atomic_compare_exchange_weak(&top, &old, new)); }
static unsigned pop(void) { uint64_t old = atomic_load(&top), new;
    do { if (!(unsigned)old) return 0; new = ((old >> 32) + 1) << 32 | atomic_load(&node[(unsigned)old].next); } while (!atomic_compare_exchange_weak(&top, &old, new));
    return (unsigned)old; }
static void *work(void *arg) { long me = (long)arg; for (;;) { unsigned i = pop(); if (!i) continue; node[i].value += i; push(i); moves[me]++; } }
int main(void) { for (unsigned i = 1; i < N; i++) push(i); pthread_t t; for (long i = 1; i < 3; i++) pthread_create(&t, 0, work, (void *)i); work(0); }
