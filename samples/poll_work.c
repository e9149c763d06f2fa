/* SPDX-License-Identifier: MIT */
/* Negative: a reactor polls with no timeout and has a message to handle nearly every time. "spin"
 * has an endless supply of messages. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wire[2];
static long messages = 20000;
static long handled[16];

static void *send_all(void *unused)
{
    for (long number = 0; number < messages; number++) {
        char message[32];
        int length = snprintf(message, sizeof message, "%031ld", number);
        if (write(wire[1], message, (size_t)length + 1) < 0)
            break;
    }
    close(wire[1]);
    return unused;
}

static void handle(const char *message)
{
    char *copy = strdup(message);
    handled[strtol(copy, NULL, 10) % 16]++;
    free(copy);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        messages = 1000000000000;
    if (pipe(wire) != 0)
        return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, send_all, NULL);
    char message[32];
    for (;;) {
        struct pollfd input = {.fd = wire[0], .events = POLLIN};
        if (poll(&input, 1, 0) <= 0)
            continue;
        if (read(wire[0], message, sizeof message) != sizeof message)
            break;
        handle(message);
    }
    pthread_join(thread, NULL);
    printf("%ld\n", handled[0]);
    return 0;
}
