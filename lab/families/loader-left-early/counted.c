/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_loaded = PTHREAD_COND_INITIALIZER;
static int loaded;
static void report(void)
{
    pthread_mutex_lock(&mu);
    if (++loaded == 4)
        pthread_cond_signal(&all_loaded);
    pthread_mutex_unlock(&mu);
}
static void *loader(void *p)
{
    long n = (long)p;
    char path[64];
    snprintf(path, 64, n == 2 ? "/nonexistent/part%ld" : "/proc/self/status", n);
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "part %ld: cannot open\n", n);
        return NULL;
    }
    char line[256];
    while (fgets(line, 256, f))
        ;
    fclose(f);
    usleep(80000 + n * 10000);
    report();
    return NULL;
}
static void *stats(void *p)
{
    (void)p;
    for (;;) {
        usleep(200000);
        pthread_mutex_lock(&mu);
        volatile int n = loaded;
        (void)n;
        pthread_mutex_unlock(&mu);
    }
}
static void *logger(void *p)
{
    (void)p;
    int *fd = p;
    char c;
    while (read(fd[0], &c, 1) > 0) {
    }
    return NULL;
}
static void wait_for_load(void)
{
    pthread_mutex_lock(&mu);
    while (loaded < 4)
        pthread_cond_wait(&all_loaded, &mu);
    pthread_mutex_unlock(&mu);
}
int main(void)
{
    static int fd[2];
    pipe(fd);
    pthread_t t, l[4];
    pthread_create(&t, 0, stats, 0);
    pthread_setname_np(t, "stats");
    pthread_create(&t, 0, logger, fd);
    pthread_setname_np(t, "logger");
    for (long i = 0; i < 4; i++)
        pthread_create(&l[i], 0, loader, (void *)i);
    wait_for_load();
    puts("loaded");
}
