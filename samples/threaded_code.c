/* SPDX-License-Identifier: MIT */
/* A small machine for filter programs runs them by threaded code (labels as values): each
 * instruction jumps to the next by a table. One program waits in an instruction for a packet: the
 * word chooses which instruction comes next. In spin mode the card's thread ends without one. */
#include "announce.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum op { LOAD, ADD, WAIT, STORE, STOP };

struct ring {
    char name[16];
    unsigned long polls;
    unsigned arrived; /* 0 or 1 */
};

static struct ring *ring;
static int hang;

static void *card(void *unused)
{
    usleep(150000);
    if (!hang)
        __atomic_store_n(&ring->arrived, 1, __ATOMIC_RELEASE);
    return unused;
}

__attribute__((noinline)) static long run(const unsigned char *program, struct ring *r)
{
    static const void *const labels[] = {&&load, &&add, &&wait, &&store, &&stop};
    const unsigned char *at = program;
    long a = 0;
#define NEXT goto *labels[*at]
    NEXT;
load:
    a = r->name[0];
    at++;
    NEXT;
add:
    a += 40;
    at++;
    NEXT;
wait:
    __builtin_ia32_pause();
    at += __atomic_load_n(&r->arrived, __ATOMIC_ACQUIRE);
    NEXT;
store:
    r->name[0] = (char)a;
    at++;
    NEXT;
stop:
    return a;
}

int main(int argc, char **argv)
{
    static const unsigned char program[] = {LOAD, ADD, WAIT, STORE, STOP};
    hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    ring = calloc(1, sizeof *ring);
    strcpy(ring->name, "eth0");
    announce_flag(&ring->arrived, sizeof ring->arrived);
    pthread_t thread;
    pthread_create(&thread, NULL, card, NULL);
    printf("%ld\n", run(program, ring));
    pthread_join(thread, NULL);
    return 0;
}
