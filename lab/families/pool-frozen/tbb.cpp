// SPDX-License-Identifier: MIT
/* TBB's pool: tbb normal|spin ROUNDS. Tasks are enqueued; main polls how many are done. */
#include "freeze.h"
#include <atomic>
#include <tbb/task_arena.h>
#include <thread>

static std::atomic<int> done;

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 40;
    static volatile double sums[64];
    LAB_ROLE("waiter");
    LAB_WORD("done", &done, 4);
    tbb::task_arena arena(4, 1);
    for (int round = 0; round <= rounds; round++) {
        bool hang = round == rounds && strcmp(argv[1], "spin") == 0;
        usleep(10000);
        done = 0;
        for (int task = 0; task < 3; task++)
            arena.enqueue([task, round, hang] {
                double sum = 0;
                for (int at = 1; at < 20000 + 1000 * (round % 5); at++)
                    sum += 1.0 / at;
                sums[task * 8] = sum;
                if (hang && task == 1) {
                    LAB_READY();
                    stay(0);
                }
                done.fetch_add(1, std::memory_order_release);
            });
        while (done.load(std::memory_order_acquire) != 3)
            std::this_thread::yield();
    }
    return printf("%g\n", sums[0]) < 0;
}
