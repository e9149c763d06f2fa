/* SPDX-License-Identifier: MIT */
/* A reply is awaited for as long as the link is up. In spin mode the answering thread waits for a
 * second request that never comes, and nobody takes the link down. */
#include "announce.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int link_up = 1;
int reply_ready;
static int requests[2];
static char reply[64];

static void *answer(void *argument)
{
    int wanted = *(int *)argument;
    char text[16];
    for (int got = 0; got < wanted; got++)
        if (read(requests[0], text, sizeof text) <= 0)
            return NULL;
    usleep(120000);
    snprintf(reply, sizeof reply, "answer to %d", wanted);
    __atomic_store_n(&reply_ready, 1, __ATOMIC_RELEASE);
    return NULL;
}

__attribute__((noinline)) static int await_reply(void)
{
    while (__atomic_load_n(&link_up, __ATOMIC_ACQUIRE) &&
           !__atomic_load_n(&reply_ready, __ATOMIC_ACQUIRE))
        sched_yield();
    return reply_ready;
}

int main(int argc, char **argv)
{
    int wanted = argc > 1 && strcmp(argv[1], "spin") == 0 ? 2 : 1;
    announce_flag(&reply_ready, sizeof reply_ready);
    announce_flag(&link_up, sizeof link_up);
    if (pipe(requests) != 0)
        return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, answer, &wanted);
    usleep(50000);
    if (write(requests[1], "GET", 3) != 3)
        return 1;
    int answered = await_reply();
    pthread_join(thread, NULL);
    return puts(answered ? reply : "link down") < 0;
}
