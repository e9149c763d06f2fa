/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sys/wait.h>
#include <truth.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void *write_log(void *argument)
{
    pthread_mutex_lock(&log_lock);
    usleep(300000);
    pthread_mutex_unlock(&log_lock);
    return argument;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, write_log, NULL);
    usleep(100000);
    pid_t child = fork();
    if (child == 0) {
        LAB_ROLE("waiter");
        pthread_mutex_lock(&log_lock);
        _exit(0);
    }
    pthread_join(thread, NULL);
    usleep(100000);
    LAB_READY();
    waitpid(child, NULL, 0);
    return 0;
}
