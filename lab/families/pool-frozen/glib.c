/* SPDX-License-Identifier: MIT */
/* glib's thread pool: glib normal|spin ROUNDS. Its workers sleep; main polls a task's state. */
#include "freeze.h"
#include <glib.h>

struct task {
    int rounds, hang, state;
};

static void serve(gpointer data, gpointer unused)
{
    struct task *task = data;
    double sum = 0;
    (void)unused;
    for (int at = 1; at < 20000 + 1000 * (task->rounds % 5); at++)
        sum += 1.0 / at;
    if (task->hang) {
        LAB_READY();
        stay(0);
    }
    g_atomic_int_set(&task->state, sum > 0 ? 2 : 3);
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 40;
    GThreadPool *pool = g_thread_pool_new(serve, NULL, 3, TRUE, NULL);
    static struct task tasks[3];
    LAB_ROLE("waiter");
    LAB_WORD("state", &tasks[1].state, 4);
    for (int round = 0; round <= rounds; round++) {
        int hang = round == rounds && strcmp(argv[1], "spin") == 0;
        usleep(10000);
        for (int at = 0; at < 3; at++) {
            tasks[at] = (struct task){round, hang && at == 1, 1};
            g_thread_pool_push(pool, &tasks[at], NULL);
        }
        for (int at = 0; at < 3; at++)
            while (g_atomic_int_get(&tasks[at].state) < 2)
                g_thread_yield();
    }
    return printf("%d\n", tasks[2].state) < 0;
}
