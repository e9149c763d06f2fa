// Four threads take a spin lock for moments, and count.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
struct { _Alignas(64) atomic_int held; _Alignas(64) uint64_t table[1024]; uint64_t done; } shared;
static void take(void) {
    for (;;) {
        if (!atomic_exchange_explicit(&shared.held, 1, memory_order_acquire)) return;
        while (atomic_load_explicit(&shared.held, memory_order_relaxed)) __builtin_ia32_pause();
    }
}
static void *work(void *arg) {
    uint64_t x = (uintptr_t)arg + 1;
    for (;;) {
        take();
        for (int i = 0; i < 300; i++) { x = x * 6364136223846793005u + 1; shared.table[x >> 54] += x; }
        shared.done++;
        atomic_store_explicit(&shared.held, 0, memory_order_release);
    }
}
int main(void) { pthread_t t; for (long i = 1; i < 4; i++) pthread_create(&t, 0, work, (void *)i); work(0); }
