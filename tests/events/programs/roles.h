/* SPDX-License-Identifier: MIT */
/* What these programs share: they tell which thread has which part. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline void tell(const char *role)
{
    printf("%s %ld\n", role, syscall(SYS_gettid));
    fflush(stdout);
}

static inline void start(pthread_t *thread, void *(*function)(void *), void *argument)
{
    if (pthread_create(thread, NULL, function, argument))
        abort();
}
