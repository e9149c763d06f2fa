/* SPDX-License-Identifier: MIT */
/* An event loop that wakes a few times a second to look at its clock, while no client comes. */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

#include "truth.h"

static volatile sig_atomic_t quit;
static long ticks;

static void stop(int signal)
{
    (void)signal;
    quit = 1;
}

static int wait_for_client(const char *how, int listener, int epoll)
{
    struct epoll_event event;
    struct pollfd entry = {.fd = listener, .events = POLLIN};
    struct timeval limit = {.tv_usec = 200 * 1000};
    fd_set set;

    if (!strcmp(how, "epoll"))
        return epoll_wait(epoll, &event, 1, 200);
    if (!strcmp(how, "poll"))
        return poll(&entry, 1, 200);
    FD_ZERO(&set);
    FD_SET(listener, &set);
    return select(listener + 1, &set, NULL, NULL, &limit);
}

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "poll";
    struct sockaddr_in address = {.sin_family = AF_INET};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8))
        return 1;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    signal(SIGTERM, stop);
    LAB_READY();
    while (!quit) {
        if (wait_for_client(how, listener, epoll) > 0)
            close(accept(listener, NULL, NULL));
        ticks = time(NULL);
    }
    return 0;
}
