/* SPDX-License-Identifier: MIT */
/* Prints what a program sees of itself; ends as argv[1] says: a status, or "signal". */
#define _GNU_SOURCE
#include <errno.h> /* program_invocation_short_name */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    char text[4096];
    sigset_t mask;
    printf("argv0 %s short %s\n", argv[0], program_invocation_short_name);
    for (char **entry = environ; *entry != NULL; entry++)
        printf("env %s\n", *entry);
    printf("parent %d cwd %s\n", getppid(), getcwd(text, sizeof text));
    ssize_t size = readlink("/proc/self/exe", text, sizeof text);
    printf("exe %.*s\n", (int)size, text);
    for (int i = 0; i < 64; i++) {
        if (fcntl(i, F_GETFD) >= 0)
            printf("descriptor %d\n", i);
    }
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int i = 1; i < 32; i++) {
        struct sigaction action;
        if (sigismember(&mask, i))
            printf("blocked %d\n", i);
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("disposition %d %d\n", i, action.sa_handler == SIG_IGN);
    }
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "signal") == 0)
        raise(SIGTERM);
    return argc > 1 ? atoi(argv[1]) : 0;
}
