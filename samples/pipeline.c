/* SPDX-License-Identifier: MIT */
/* Negative: three stages hand items on through bounded queues with condition variables. "spin" has
 * an endless supply of items; each stage waits often, and never long. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ROOM = 16 };

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t item[ROOM];
    unsigned count, first;
};

static struct queue parsed = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};
static struct queue hashed = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};
static long items = 5000;

static void put(struct queue *queue, uint64_t item)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->count == ROOM)
        pthread_cond_wait(&queue->changed, &queue->lock);
    queue->item[(queue->first + queue->count++) % ROOM] = item;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static uint64_t get(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0)
        pthread_cond_wait(&queue->changed, &queue->lock);
    uint64_t item = queue->item[queue->first];
    queue->first = (queue->first + 1) % ROOM;
    queue->count--;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return item;
}

static void *parse(void *unused)
{
    for (long number = 1; number <= items; number++)
        put(&parsed, (uint64_t)number);
    put(&parsed, 0);
    return unused;
}

static void *hash(void *unused)
{
    for (uint64_t item; (item = get(&parsed)) != 0;) {
        for (int round = 0; round < 200; round++)
            item = (item ^ (item >> 33)) * 0xff51afd7ed558ccdu;
        put(&hashed, item | 1);
    }
    put(&hashed, 0);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        items = 1000000000000;
    pthread_t parser, hasher;
    pthread_create(&parser, NULL, parse, NULL);
    pthread_create(&hasher, NULL, hash, NULL);
    uint64_t sum = 0;
    for (uint64_t item; (item = get(&hashed)) != 0;)
        sum += item;
    pthread_join(parser, NULL);
    pthread_join(hasher, NULL);
    printf("%jx\n", (uintmax_t)sum);
    return 0;
}
