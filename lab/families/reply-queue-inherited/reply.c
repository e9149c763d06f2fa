/* SPDX-License-Identifier: MIT */
#include "truth.h"
#include <fcntl.h>
#include <mqueue.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

static void log_lines(int from)
{
    char line[4096];
    LAB_ROLE("logger");
    raise(SIGSTOP);
    while (read(from, line, sizeof line) > 0)
        ;
}

static void post(int log, sem_t *ready)
{
    static const char line[4096];
    LAB_ROLE("poster");
    for (int count = 0; count < 40; count++)
        if (write(log, line, sizeof line) < 0)
            _exit(1);
    sem_post(ready);
}

int main(void)
{
    char name[32], reply[32];
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = sizeof reply};
    snprintf(name, sizeof name, "/lab-reply-%d", getpid());
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &attributes);
    mq_unlink(name);
    sem_t *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int log[2];
    if (queue < 0 || ready == MAP_FAILED || sem_init(ready, 1, 0) != 0 || pipe(log) != 0)
        return 1;
    if (fork() == 0) {
        close(log[1]);
        log_lines(log[0]);
        _exit(0);
    }
    close(log[0]);
    if (fork() == 0) {
        post(log[1], ready);
        _exit(0);
    }
    close(log[1]);
    if (fork() == 0) {
        LAB_ROLE("server");
        sem_wait(ready);
        mq_send(queue, "ok", 3, 0);
        _exit(0);
    }
    LAB_ROLE("waiter");
    usleep(500000);
    LAB_READY();
    return mq_receive(queue, reply, sizeof reply, NULL) < 0;
}
