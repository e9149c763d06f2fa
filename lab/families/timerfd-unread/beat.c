/* SPDX-License-Identifier: MIT */
#include <sys/select.h>
#include <sys/timerfd.h>
#include <truth.h>

static long beats;

int main(void)
{
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    timerfd_settime(timer, 0, &soon, NULL);
    LAB_ROLE("waiter");
    LAB_FD("timer", timer);
    LAB_READY();
    for (;;) {
        fd_set ready;
        FD_ZERO(&ready);
        FD_SET(timer, &ready);
        if (select(timer + 1, &ready, NULL, NULL, NULL) > 0 && FD_ISSET(timer, &ready))
            beats++;
    }
}
