/* SPDX-License-Identifier: MIT */
/* A request lives on its caller's stack and the service completes it in place. The service answers
 * in batches of four; in spin mode three requests are all there is, and nobody flushes the batch.
 * */
#include "announce.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

struct request {
    int argument;
    int result;
    int pending;
    struct request *next;
};

static struct request *inbox;
static pthread_mutex_t inbox_lock = PTHREAD_MUTEX_INITIALIZER;
static int batch_size = 1;
static int stop;

static void post(struct request *request)
{
    pthread_mutex_lock(&inbox_lock);
    request->next = inbox;
    inbox = request;
    pthread_mutex_unlock(&inbox_lock);
}

static void complete(struct request *request)
{
    request->result = request->argument * 2;
    __atomic_store_n(&request->pending, 0, __ATOMIC_RELEASE);
}

static void *service(void *unused)
{
    struct request *batch[4];
    int held = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&inbox_lock);
        if (inbox != NULL && held < 4) {
            batch[held++] = inbox;
            inbox = inbox->next;
        }
        pthread_mutex_unlock(&inbox_lock);
        usleep(5000);
        if (held >= __atomic_load_n(&batch_size, __ATOMIC_ACQUIRE))
            while (held > 0)
                complete(batch[--held]);
    }
    return unused;
}

__attribute__((noinline)) static int call(int argument, int announced)
{
    struct request request = {.argument = argument, .pending = 1};
    if (announced)
        announce_flag(&request.pending, sizeof request.pending);
    post(&request);
    while (__atomic_load_n(&request.pending, __ATOMIC_ACQUIRE))
        sched_yield();
    return request.result;
}

int main(int argc, char **argv)
{
    int hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    pthread_t thread;
    pthread_create(&thread, NULL, service, NULL);
    int sum = 0;
    for (int argument = 0; argument < 30; argument++) {
        if (hang && argument == 20)
            __atomic_store_n(&batch_size, 4, __ATOMIC_RELEASE);
        sum += call(argument, argument == 20);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    printf("sum %d\n", sum);
    return 0;
}
