/* SPDX-License-Identifier: MIT */
/* A consumer polls queue->closed under the queue's lock. The producer closes it after its last
 * item; in spin mode the producer waits for one more line of input than there is. */
#include "announce.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct queue {
    pthread_mutex_t lock;
    int length;
    int items[32];
    int closed;
};

static struct queue work = {.lock = PTHREAD_MUTEX_INITIALIZER};
static int input[2];
static int lines_wanted = 5;

static void *produce(void *unused)
{
    char line[8];
    for (int number = 0; number < lines_wanted; number++) {
        if (read(input[0], line, sizeof line) <= 0)
            return unused;
        char *copy = strndup(line, sizeof line);
        pthread_mutex_lock(&work.lock);
        work.items[work.length++] = atoi(copy);
        pthread_mutex_unlock(&work.lock);
        free(copy);
    }
    pthread_mutex_lock(&work.lock);
    work.closed = 1;
    pthread_mutex_unlock(&work.lock);
    return unused;
}

__attribute__((noinline)) static int drain(struct queue *queue)
{
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        int closed = queue->closed;
        pthread_mutex_unlock(&queue->lock);
        if (closed)
            break;
        sched_yield();
    }
    int sum = 0;
    for (int i = 0; i < queue->length; i++)
        sum += queue->items[i];
    return sum;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        lines_wanted = 6;
    announce_flag(&work.closed, sizeof work.closed);
    if (pipe(input) != 0)
        return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, produce, NULL);
    for (int number = 0; number < 5; number++) {
        usleep(50000);
        if (write(input[1], "00000042", 8) != 8)
            return 1;
    }
    int sum = drain(&work);
    pthread_join(thread, NULL);
    printf("sum %d\n", sum);
    return 0;
}
