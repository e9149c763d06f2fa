/* SPDX-License-Identifier: MIT */
#include <event2/event.h>
#include <sys/socket.h>
#include <truth.h>

static long bytes;

static void on_data(evutil_socket_t fd, short what, void *argument)
{
    char data[512];
    (void)what, (void)argument;
    ssize_t count = read(fd, data, sizeof data);
    if (count > 0) /* an end is not thought of */
        bytes += count;
}

static void is_ready(evutil_socket_t fd, short what, void *argument)
{
    (void)fd, (void)what, (void)argument;
    LAB_ROLE("waiter");
    LAB_READY();
}

int main(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 2;
    struct event_base *base = event_base_new();
    event_add(event_new(base, ends[0], EV_READ | EV_PERSIST, on_data, NULL), NULL);
    struct timeval soon = {0, 200000};
    event_base_once(base, -1, EV_TIMEOUT, is_ready, NULL, &soon);
    LAB_FD("client", ends[0]);
    if (write(ends[1], "hello", 5) != 5)
        return 3;
    close(ends[1]);
    return event_base_dispatch(base);
}
