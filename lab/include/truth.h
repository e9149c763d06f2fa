/* SPDX-License-Identifier: MIT */
/* How a program of the lab says what is true of it: lines in the file that LAB_TRUTH names, on
 * stderr without it. example.toml lists them. */
#ifndef LAB_TRUTH_H
#define LAB_TRUTH_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), unused))
#endif
static void lab_truth(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof line - 1)
        return;
    line[length++] = '\n';
    const char *path = getenv("LAB_TRUTH");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : 2;
    /* One write: lines of several threads and processes don't mix. */
    if (write(fd, line, (size_t)length) != length)
        _exit(9);
    if (path)
        close(fd);
}

/* A word that a condition reads, by a name that expect.words uses. */
#define LAB_WORD(name, address, size)                                                              \
    lab_truth("word %s 0x%jx %zu", name, (uintmax_t)(uintptr_t)(address), (size_t)(size))
/* The calling thread has this role: waiter, or one that `why.at` or `innocents` names. */
#define LAB_ROLE(role) lab_truth("role %s %d %d", role, (int)getpid(), (int)syscall(SYS_gettid))
#define LAB_FD(name, number) lab_truth("fd %s %d", name, (int)(number))
#define LAB_READY() lab_truth("ready")

#endif
