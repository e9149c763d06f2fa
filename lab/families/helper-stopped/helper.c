/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int ready;
static int sv[2];
static void *loader(void *p)
{
    (void)p;
    char b[16];
    if (read(sv[0], b, 16) > 0) {
        pthread_mutex_lock(&m);
        ready = 1;
        pthread_cond_signal(&c);
        pthread_mutex_unlock(&m);
    }
    return NULL;
}
static void *other(void *p)
{
    (void)p;
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &s, 0);
    int n;
    sigwait(&s, &n);
    return NULL;
}
static int wait_ready(void)
{
    pthread_mutex_lock(&m);
    while (!ready) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 500000000;
        if (t.tv_nsec >= 1000000000) {
            t.tv_sec++;
            t.tv_nsec -= 1000000000;
        }
        if (pthread_cond_timedwait(&c, &m, &t) == ETIMEDOUT)
            fprintf(stderr, "still waiting\n");
    }
    pthread_mutex_unlock(&m);
    return 0;
}
int main(void)
{
    socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
    pid_t p = fork();
    if (!p) {
        close(sv[0]);
        usleep(100000);
        raise(SIGSTOP);
        write(sv[1], "x", 1);
        _exit(0);
    }
    close(sv[1]);
    pthread_t t;
    pthread_create(&t, 0, other, 0);
    pthread_setname_np(t, "other");
    pthread_create(&t, 0, loader, 0);
    pthread_setname_np(t, "loader");
    wait_ready();
}
