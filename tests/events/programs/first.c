/* SPDX-License-Identifier: MIT */
/* Waits as soon as it has begun, before anybody can have read where its code is; then so long that
 * this is read before it ends. Prints `main TID`. */
#include "roles.h"

enum { WAITS = 3, WAIT_NS = 1000000, KNOWN_US = 400000 };

__attribute__((noinline)) static void begin(void)
{
    struct timespec wait = {.tv_nsec = WAIT_NS};
    for (int i = 0; i < WAITS; i++)
        nanosleep(&wait, NULL);
}

int main(void)
{
    begin();
    usleep(KNOWN_US);
    tell("main");
    return 0;
}
