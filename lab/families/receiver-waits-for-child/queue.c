/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static char name[64];
static pthread_mutex_t db = PTHREAD_MUTEX_INITIALIZER;
static void *receiver(void *p)
{
    (void)p;
    mqd_t q = mq_open(name, O_RDONLY);
    char b[64];
    for (;;) {
        if (mq_receive(q, b, 64, 0) < 0)
            break;
        pthread_mutex_lock(&db);
        usleep(1000);
        pthread_mutex_unlock(&db);
    }
    return NULL;
}
static void backup(void)
{
    pthread_mutex_lock(&db);
    pid_t p = fork();
    if (!p) {
        execlp("sleep", "sleep", "8888", NULL);
        _exit(1);
    }
    int s;
    waitpid(p, &s, 0);
    pthread_mutex_unlock(&db);
}
static void consumer(void)
{
    pthread_t t;
    pthread_create(&t, 0, receiver, 0);
    pthread_setname_np(t, "receiver");
    usleep(50000);
    backup();
}
static void producer(void)
{
    mqd_t q = mq_open(name, O_WRONLY);
    for (int i = 0;; i++) {
        char b[64];
        sprintf(b, "m%d", i);
        mq_send(q, b, 64, 0);
    }
}
int main(void)
{
    snprintf(name, 64, "/waits-%d", getpid());
    struct mq_attr a = {.mq_maxmsg = 4, .mq_msgsize = 64};
    mq_close(mq_open(name, O_RDWR | O_CREAT, 0600, &a));
    pid_t c = fork();
    if (!c) {
        consumer();
        _exit(0);
    }
    usleep(120000);
    producer();
}
