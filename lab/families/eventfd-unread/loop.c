/* SPDX-License-Identifier: MIT */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <truth.h>

static int woken;

int main(void)
{
    int waker = eventfd(0, EFD_NONBLOCK), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = waker};
    epoll_ctl(set, EPOLL_CTL_ADD, waker, &event);
    eventfd_write(waker, 1);
    LAB_ROLE("waiter");
    LAB_FD("waker", waker);
    LAB_READY();
    for (;;) {
        struct epoll_event found[8];
        int count = epoll_wait(set, found, 8, -1);
        for (int index = 0; index < count; index++)
            if (found[index].data.fd == waker)
                woken = 1;
    }
}
