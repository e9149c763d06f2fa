/* SPDX-License-Identifier: MIT */
/* A call that is made over and over although it brings nothing, for HANG_MS of CPU time. Prints
 * `main TID` and `culprit TID`.
 *
 * null: main polls /dev/null, which it has opened, and reads its end.
 * passed: a child reads a pipe that main has made and passed on, and into which nobody can write
 *   any more; main waits for its end.
 * closed: main polls a descriptor that is not open.
 * serves: main polls a pipe and reads what is in it, as fast as a thread writes that: nothing is
 *   wrong (there is no culprit). */
#include "crowd.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

enum { HANG_MS = 400, NOT_OPEN = 77 };

static int ends[2];

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

static int is_ready(int fd)
{
    struct pollfd wanted = {fd, POLLIN, 0};
    return poll(&wanted, 1, -1) == 1;
}

__attribute__((noinline)) static void repeat(int fd, int polls)
{
    char room[64];
    uint64_t end = now_ms() + HANG_MS;
    while (now_ms() < end)
        for (int round = 0; round < 100; round++)
            if ((!polls || is_ready(fd)) && fd != NOT_OPEN && read(fd, room, sizeof room) < 0)
                abort();
}

static void *feed(void *unused)
{
    char room[64] = "";
    while (write(ends[1], room, sizeof room) > 0)
        ;
    return unused;
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "null";
    tell("main");
    come_together();
    if (!strcmp(mode, "null")) {
        tell("culprit");
        repeat(open("/dev/null", O_RDONLY), 1);
    } else if (!strcmp(mode, "closed")) {
        tell("culprit");
        repeat(NOT_OPEN, 1);
    } else if (!strcmp(mode, "passed")) {
        if (pipe(ends))
            abort();
        if (!fork()) {
            close(ends[1]);
            tell("culprit");
            repeat(ends[0], 0);
            _exit(0);
        }
        close(ends[1]);
        wait(NULL);
    } else if (!strcmp(mode, "serves")) {
        pthread_t feeder;
        if (pipe(ends) || pthread_create(&feeder, NULL, feed, NULL))
            abort();
        repeat(ends[0], 1);
    } else
        return 64;
    return 0;
}
