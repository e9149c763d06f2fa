/* SPDX-License-Identifier: MIT */
/* A call chain through a library, with a large frame and a recursion on the way. With -DLIBRARY it
 * is the library.
 *
 * main > first > [through > again] > turns x DEEP > large_frame > [sleeps] > nanosleep; what is in
 * brackets is the library's. The program prints `main TID`. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void through(void (*back)(void));
void sleeps(void);

#define KEEP asm volatile("" ::: "memory") /* no tail call */

#ifdef LIBRARY
void sleeps(void)
{
    struct timespec wait = {.tv_nsec = 20000000};
    nanosleep(&wait, 0);
    KEEP;
}

__attribute__((noinline)) static void again(void (*back)(void))
{
    back();
    KEEP;
}

void through(void (*back)(void))
{
    again(back);
    KEEP;
}
#else
enum { DEEP = 8, KNOWN_US = 600000 };

__attribute__((noinline)) void large_frame(void)
{
    char room[2048];
    asm volatile("" ::"r"(room) : "memory");
    sleeps();
    KEEP;
}

__attribute__((noinline)) void turns(int left)
{
    if (left > 0)
        turns(left - 1);
    else
        large_frame();
    KEEP;
}

static void back(void)
{
    turns(DEEP - 1);
    KEEP;
}

__attribute__((noinline)) void first(void)
{
    through(back);
    KEEP;
}

int main(void)
{
    printf("main %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    usleep(KNOWN_US); /* its code is looked up meanwhile */
    first();
    return 0;
}
#endif
