/* SPDX-License-Identifier: MIT */
#include <sys/wait.h>
#include <truth.h>

static pid_t start(const char *command)
{
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return child;
}

int main(void)
{
    pid_t holder = start("exec 9> $LAB_RUN/lock; flock 9; exec sleep 100000");
    lab_truth("role holder %d", holder);
    usleep(300000);
    pid_t child = start("exec flock $LAB_RUN/lock true");
    LAB_ROLE("waiter");
    lab_truth("role child %d", child);
    LAB_READY();
    int status;
    while (waitpid(child, &status, WNOHANG) == 0)
        usleep(500);
    return WEXITSTATUS(status);
}
