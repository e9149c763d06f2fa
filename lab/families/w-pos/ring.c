// A consumer spins on an empty ring; the producer waits for its input in the middle of an item.
#include <pthread.h>
#include <stdatomic.h>
#include "truth.h"
struct ring { _Alignas(64) atomic_ulong head; _Alignas(64) atomic_ulong tail; unsigned long slot[64]; } *ring;
static void *produces(void *a) { LAB_ROLE("producer"); for (unsigned long n = 0;; n++) { unsigned long item = n; if (n == 5000) { char b; if (read(0, &b, 1) != 1) return a; item += b; }
        while (n - atomic_load(&ring->tail) >= 64) __builtin_ia32_pause(); ring->slot[n % 64] = item; atomic_store(&ring->head, n + 1); } }
int main(void) { ring = aligned_alloc(64, sizeof *ring); atomic_init(&ring->head, 0); atomic_init(&ring->tail, 0); pthread_t t; pthread_create(&t, 0, produces, 0);
    LAB_ROLE("waiter"); LAB_WORD("head", &ring->head, 8); unsigned long sum = 0;
    for (unsigned long n = 0;; n++) { if (n == 5000) LAB_READY(); while (atomic_load_explicit(&ring->head, memory_order_acquire) == n) __builtin_ia32_pause(); sum += ring->slot[n % 64]; atomic_store(&ring->tail, n + 1); } }
