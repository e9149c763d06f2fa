/* SPDX-License-Identifier: MIT */
/* Negative: threads push to a shared list head with compare-and-swap. Retries under contention are
 * progress of the others; "spin" has far more to push. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct node {
    struct node *next;
    long value;
};

static _Atomic(struct node *) head;
static atomic_long retries;
static long pushes = 1500000;

static void *push_many(void *argument)
{
    struct node pool[64];
    for (long number = 0; number < pushes; number++) {
        struct node *node = &pool[number % 64];
        node->value = number + (long)argument;
        struct node *seen = atomic_load_explicit(&head, memory_order_relaxed);
        do {
            node->next = seen;
            if (number % 100 == 0)
                atomic_fetch_add_explicit(&retries, 1, memory_order_relaxed);
        } while (!atomic_compare_exchange_weak(&head, &seen, node));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        pushes = 2000000000000;
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, push_many, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%s\n", atomic_load(&retries) > 0 ? "pushed" : "nothing");
    return 0;
}
