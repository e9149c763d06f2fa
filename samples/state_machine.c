/* SPDX-License-Identifier: MIT */
/* A connection is a state machine with dense states, whose `switch` becomes a jump table. It waits
 * in a state that another thread ends. In spin mode the negotiator gives up and leaves the state as
 * it is. */
#include "announce.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum state { CLOSED, DIALING, GREETING, NEGOTIATING, READY, DRAINING, FAILED, DONE };

struct connection {
    char peer[24];
    unsigned long looks;
    enum state state;
};

static struct connection *connection;
static int hang;

static void *negotiate(void *unused)
{
    usleep(150000);
    if (!hang)
        __atomic_store_n(&connection->state, READY, __ATOMIC_RELEASE);
    return unused;
}

__attribute__((noinline)) static long drive(struct connection *c)
{
    long bytes = 0;
    for (;;) {
        switch (__atomic_load_n(&c->state, __ATOMIC_ACQUIRE)) {
        case CLOSED:
            bytes += strlen(c->peer);
            c->state = DIALING;
            break;
        case DIALING:
            bytes ^= 0x55;
            c->state = GREETING;
            break;
        case GREETING:
            bytes += write(2, "hello\n", 6);
            __atomic_store_n(&c->state, NEGOTIATING, __ATOMIC_RELEASE);
            break;
        case NEGOTIATING:
            sched_yield();
            break;
        case READY:
            bytes *= 3;
            c->state = DRAINING;
            break;
        case DRAINING:
            bytes += 7;
            c->state = DONE;
            break;
        case FAILED:
            abort();
        case DONE:
            return bytes;
        default:
            __builtin_unreachable();
        }
    }
}

int main(int argc, char **argv)
{
    hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    connection = calloc(1, sizeof *connection);
    strcpy(connection->peer, "database.example");
    announce_flag(&connection->state, sizeof connection->state);
    pthread_t negotiator;
    pthread_create(&negotiator, NULL, negotiate, NULL);
    printf("%ld bytes\n", drive(connection));
    pthread_join(negotiator, NULL);
    return 0;
}
