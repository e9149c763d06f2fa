/* SPDX-License-Identifier: MIT */
/* Negative: two workers of a server share an epoll set and answer requests on eight connections.
 * "spin" has an endless supply of requests; each round of a worker answers one. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 8, WORKERS = 2 };
static int server[CONNECTIONS], client[CONNECTIONS], set;
static long requests = 4000;
static long answered[WORKERS];

static void watch(int connection, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = connection};
    if (epoll_ctl(set, operation, connection, &event) != 0)
        abort();
}

static int answer(int connection)
{
    char request[64];
    ssize_t length = read(connection, request, sizeof request);
    if (length <= 0)
        return 0;
    for (ssize_t i = 0; i < length; i++)
        request[i] ^= 0x20;
    return write(connection, request, (size_t)length) == length;
}

static void *work(void *counter)
{
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, -1) != 1)
            continue;
        if (!answer(event.data.fd)) {
            watch(event.data.fd,
                  EPOLL_CTL_MOD); /* the end of a connection is for the other worker too */
            return NULL;
        }
        ++*(long *)counter;
        watch(event.data.fd, EPOLL_CTL_MOD);
    }
}

static void *ask_all(void *unused)
{
    for (long number = 0; number < requests; number++) {
        char request[64];
        int length = snprintf(request, sizeof request, "GET /%ld", number),
            at = client[number % CONNECTIONS];
        if (write(at, request, (size_t)length) != length ||
            read(at, request, sizeof request) != length)
            abort();
    }
    for (int i = 0; i < CONNECTIONS; i++)
        shutdown(client[i], SHUT_WR);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        requests = 1000000000000;
    set = epoll_create1(0);
    for (int i = 0; i < CONNECTIONS; i++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
            return 1;
        server[i] = ends[0];
        client[i] = ends[1];
        watch(server[i], EPOLL_CTL_ADD);
    }
    pthread_t asker, workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&workers[i], NULL, work, &answered[i]);
    pthread_create(&asker, NULL, ask_all, NULL);
    pthread_join(asker, NULL);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    printf("%ld\n", answered[0] + answered[1]);
    return 0;
}
