/* SPDX-License-Identifier: MIT */
/* Negative: a sampler waits for the ticks of a timer and takes a reading at each. "spin" has no
 * last tick: what it reads from the timer is the same each time, and yet each round takes a reading
 * more. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { KEPT = 64, TICK_NS = 1000000 };
static uint64_t readings[KEPT];
static long taken;

static uint64_t take_reading(void)
{
    static uint64_t weather = 88172645463325252u;
    weather ^= weather << 13;
    weather ^= weather >> 7;
    weather ^= weather << 17;
    return weather % 1000;
}

static uint64_t average(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < KEPT; i++)
        sum += readings[i];
    return sum / KEPT;
}

int main(int argc, char **argv)
{
    long wanted = argc > 1 && strcmp(argv[1], "spin") == 0 ? 1000000000000 : 200;
    struct itimerspec every = {.it_interval = {0, TICK_NS}, .it_value = {0, TICK_NS}};
    struct pollfd timer = {.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), .events = POLLIN};
    if (timerfd_settime(timer.fd, 0, &every, NULL) != 0)
        return 1;
    while (taken < wanted) {
        uint64_t ticks;
        if (poll(&timer, 1, -1) != 1 || read(timer.fd, &ticks, sizeof ticks) != sizeof ticks)
            continue;
        readings[taken++ % KEPT] = take_reading();
    }
    printf("%ld readings, %ju on average\n", taken, (uintmax_t)average());
    return 0;
}
