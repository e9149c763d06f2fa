/* SPDX-License-Identifier: MIT */
/* A client holds server -> session; the handshake thread moves session->phase on. In spin mode it
 * meets a message that it does not know, and drops it. */
#include "announce.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum phase { CONNECTING = 3, GREETED = 4, OPEN = 9 };

struct session {
    long id;
    char peer[40];
    unsigned long bytes_in, bytes_out;
    unsigned char retries;
    int phase;
};

struct server {
    int socket;
    struct session *session;
    char name[24];
};

static int link_pipe[2];

static void *handshake(void *argument)
{
    struct session *session = argument;
    char message;
    while (read(link_pipe[0], &message, 1) == 1) {
        session->bytes_in++;
        switch (message) {
        case 'h':
            __atomic_store_n(&session->retries, 1, __ATOMIC_RELAXED);
            break;
        case 'o':
            __atomic_store_n(&session->phase, OPEN, __ATOMIC_RELEASE);
            break;
        default:
            break;
        }
    }
    return NULL;
}

__attribute__((noinline)) static void wait_until_open(struct server *server)
{
    while (__atomic_load_n(&server->session->phase, __ATOMIC_ACQUIRE) != OPEN) {
        server->session->bytes_out++;
        sched_yield();
    }
}

int main(int argc, char **argv)
{
    int hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    struct server *server = calloc(1, sizeof *server);
    server->session = calloc(1, sizeof *server->session);
    server->session->phase = CONNECTING;
    strcpy(server->session->peer, "peer.example");
    announce_flag(&server->session->phase, sizeof server->session->phase);
    if (pipe(link_pipe) != 0)
        return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, handshake, server->session);
    const char *wire = hang ? "hhhO" : "hhho";
    for (const char *message = wire; *message; message++) {
        usleep(60000);
        if (write(link_pipe[1], message, 1) != 1)
            return 1;
        free(strdup(server->name));
    }
    wait_until_open(server);
    close(link_pipe[1]);
    pthread_join(thread, NULL);
    free(server->session);
    free(server);
    return 0;
}
