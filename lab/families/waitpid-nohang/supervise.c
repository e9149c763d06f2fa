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
    start("exec flock $LAB_RUN/lock sleep 100000");
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
