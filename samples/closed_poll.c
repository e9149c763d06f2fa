/* SPDX-License-Identifier: MIT */
/* An event loop polls its control input and a result pipe. In spin mode the control input was
 * closed by a library's clean-up (fd 0), so poll returns POLLNVAL at once for ever, while the
 * result never comes: as xargs once did. */
#include "announce.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int control[2];
static int results[2];
static int hang;
static int debug_level;

static void *compute(void *unused)
{
    char go;
    usleep(100000);
    if (hang && read(control[0], &go, 1) != 1)
        return unused;
    if (write(results[1], "done", 4) != 4)
        abort();
    return unused;
}

__attribute__((noinline)) static int event_loop(void)
{
    struct pollfd inputs[2] = {{.fd = 0, .events = POLLIN}, {.fd = results[0], .events = POLLIN}};
    char text[8];
    for (;;) {
        int ready = poll(inputs, 2, -1);
        if (ready < 0 && errno != EINTR)
            return 1;
        if (inputs[0].revents & POLLIN && read(0, text, sizeof text) <= 0)
            return 2;
        if (inputs[1].revents & POLLIN)
            return read(results[0], text, sizeof text) != 4;
        if (debug_level > 1)
            fputs("nothing yet\n", stderr);
    }
}

int main(int argc, char **argv)
{
    hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    int idle[2];
    if (pipe(control) != 0 || pipe(results) != 0 || pipe(idle) != 0 || dup2(idle[0], 0) != 0)
        return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, compute, NULL);
    if (hang)
        close(0);
    int failed = event_loop();
    pthread_join(thread, NULL);
    return failed;
}
