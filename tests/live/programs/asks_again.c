/* SPDX-License-Identifier: MIT */
/* Loops around a call that comes back at once. In one round of many the process stops itself, so
 * that its core is always of the same moment, in which the call's answer is not in a register. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLOSED = 777, STOPS_IN = 1000 };

static void one_round(void)
{
    static int rounds;
    if (++rounds == STOPS_IN)
        raise(SIGSTOP);
}

/* The array is made anew in each round: it does not hold what the last poll found. */
static void polls(void)
{
    for (;;) {
        struct pollfd entry = {CLOSED, POLLIN, 0};
        one_round();
        if (poll(&entry, 1, -1) == 0)
            return;
    }
}

static void receives(int fd)
{
    char byte;
    for (;;) {
        one_round();
        if (recv(fd, &byte, 1, MSG_DONTWAIT) == 1)
            return;
    }
}

static void awaits(pid_t child)
{
    for (;;) {
        one_round();
        if (waitpid(child, NULL, WNOHANG) == child)
            return;
    }
}

/* What it reads tells it where to go on. */
static void serves(int in, int out)
{
    char place = 0;
    for (;;) {
        if (write(out, &place, 1) != 1)
            return;
        one_round();
        if (read(in, &place, 1) != 1)
            return;
        place = (char)(place * 5 + 1);
    }
}

int main(int count, char **words)
{
    const char *way = count > 1 ? words[1] : "";
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 1;
    if (strcmp(way, "polls") == 0) {
        polls();
    } else if (strcmp(way, "receives") == 0) {
        printf("fd %d\n", ends[0]);
        fflush(stdout);
        receives(ends[0]);
    } else if (strcmp(way, "awaits") == 0) {
        pid_t child = fork();
        if (child == 0)
            pause();
        awaits(child);
    } else {
        serves(ends[0], ends[1]);
    }
    return 0;
}
