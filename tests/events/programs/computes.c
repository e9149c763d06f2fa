/* SPDX-License-Identifier: MIT */
/* A thread that computes for a while, mostly in often(), partly in seldom(), and writes to
 * /dev/null and reads a descriptor that it has not meanwhile. Prints `main TID`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 200, CALLS = 3, KNOWN_US = 600000 };

static volatile unsigned sum;

__attribute__((noinline)) void often(int rounds)
{
    for (int i = 0; i < rounds * 4; i++)
        sum = sum * 31 + i;
}

__attribute__((noinline)) void seldom(int rounds)
{
    for (int i = 0; i < rounds; i++)
        sum = sum * 17 + i;
}

int main(void)
{
    char byte = 0;
    int null = open("/dev/null", O_WRONLY);
    printf("main %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    usleep(KNOWN_US); /* its code is looked up meanwhile */
    for (int round = 0; round < ROUNDS; round++) {
        often(200000);
        seldom(200000);
        for (int i = 0; i < CALLS; i++)
            if (write(null, &byte, 1) != 1 || read(-1, &byte, 1) != -1)
                abort();
    }
    usleep(1000);
    return 0;
}
