/* SPDX-License-Identifier: MIT */
/* Two threads that hash in private and meet at four mutexes: threads ROUNDS. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHARDS = 4, PRIVATE_STEPS = 200 };

static struct shard {
    pthread_mutex_t mutex;
    uint64_t sum;
} shards[SHARDS];
static long rounds;

static void *work(void *seed)
{
    uint64_t state = (uintptr_t)seed;
    for (long round = 0; round < rounds; round++) {
        for (int step = 0; step < PRIVATE_STEPS; step++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        struct shard *shard = &shards[state % SHARDS];
        pthread_mutex_lock(&shard->mutex);
        shard->sum += state;
        pthread_mutex_unlock(&shard->mutex);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: threads ROUNDS\n");
        return 2;
    }
    rounds = atol(argv[1]);
    for (int i = 0; i < SHARDS; i++)
        pthread_mutex_init(&shards[i].mutex, NULL);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(i + 88172645463325252u)) != 0)
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    uint64_t sum = 0;
    for (int i = 0; i < SHARDS; i++)
        sum += shards[i].sum;
    printf("%" PRIu64 "\n", sum);
    return 0;
}
