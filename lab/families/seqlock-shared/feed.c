/* SPDX-License-Identifier: MIT */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <truth.h>

struct quote {
    atomic_uint sequence;
    atomic_long bid, ask;
};

static long middle(struct quote *quote)
{
    for (;;) {
        unsigned before = atomic_load_explicit(&quote->sequence, memory_order_acquire);
        if (before & 1)
            continue;
        long sum = atomic_load(&quote->bid) + atomic_load(&quote->ask);
        if (atomic_load(&quote->sequence) == before)
            return sum / 2;
    }
}

int main(void)
{
    struct quote *quote =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    quote->bid = 100, quote->ask = 102;
    pid_t writer = fork();
    if (writer == 0) {
        for (int round = 0;; round++) {
            atomic_fetch_add(&quote->sequence, 1);
            quote->bid = 100 + round;
            if (round == 1)
                raise(SIGSTOP);
            quote->ask = 102 + round;
            atomic_fetch_add(&quote->sequence, 1);
        }
    }
    int status;
    waitpid(writer, &status, WUNTRACED);
    LAB_ROLE("waiter");
    lab_truth("role writer %d", writer);
    LAB_WORD("sequence", &quote->sequence, 4);
    LAB_READY();
    long found = middle(quote);
    usleep(5000000);
    return found > 0 ? 0 : 1;
}
