/* SPDX-License-Identifier: MIT */
// Calls on descriptors that come back at once: HOW [FIFO].

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile int over;

static void poll_for_ever(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char byte;
    while (!over)
        if (poll(&entry, 1, -1) == 1 && entry.revents == POLLIN && read(fd, &byte, 1) == 1)
            break;
}

static void wait_for_hangup(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    while (!over)
        if (poll(&entry, 1, -1) == 1 && (entry.revents & POLLHUP))
            break;
}

static void read_for_ever(int fd)
{
    char byte;
    while (!over)
        if (read(fd, &byte, 1) == 1)
            break;
}

static void epoll_for_ever(int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    int group = epoll_create1(0);
    char byte;
    epoll_ctl(group, EPOLL_CTL_ADD, fd, &event);
    while (!over)
        if (epoll_wait(group, &event, 1, -1) == 1 && read(fd, &byte, 1) == 1)
            break;
}

int main(int count, char **words)
{
    int pair[2];
    if (count < 2)
        return 2;
    if (strcmp(words[1], "closed") == 0) {
        int fd = dup(0);
        close(fd);
        printf("%d\n", fd);
        fflush(stdout);
        poll_for_ever(fd);
    } else if (strcmp(words[1], "null") == 0) {
        puts("0");
        fflush(stdout);
        wait_for_hangup(0);
    } else if (strcmp(words[1], "input") == 0) {
        puts("0");
        fflush(stdout);
        poll_for_ever(0);
    } else if (strcmp(words[1], "fifo") == 0) {
        int fd = open(words[2], O_RDONLY | O_NONBLOCK);
        printf("%d\n", fd);
        fflush(stdout);
        read_for_ever(fd);
    } else if (strcmp(words[1], "peer") == 0) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        close(pair[1]);
        printf("%d\n", pair[0]);
        fflush(stdout);
        epoll_for_ever(pair[0]);
    }
    return 0;
}
