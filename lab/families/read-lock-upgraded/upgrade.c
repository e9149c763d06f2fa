/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_rwlock_t cache = PTHREAD_RWLOCK_INITIALIZER;
static int table[64];
static void insert(int k, int v)
{
    pthread_rwlock_wrlock(&cache);
    table[k] = v;
    pthread_rwlock_unlock(&cache);
}
static int lookup(int k)
{
    pthread_rwlock_rdlock(&cache);
    int v = table[k];
    if (!v && k == 17) {
        insert(k, 1);
        v = 1;
    }
    pthread_rwlock_unlock(&cache);
    return v;
}
static void *reader(void *p)
{
    (void)p;
    for (int i = 0;; i++) {
        lookup(i % 16);
        usleep(10000);
    }
}
static void *updater(void *p)
{
    (void)p;
    usleep(150000);
    lookup(17);
    return NULL;
}
int main(void)
{
    pthread_t a, b, c;
    pthread_create(&a, 0, reader, 0);
    pthread_setname_np(a, "reader");
    pthread_create(&b, 0, updater, 0);
    pthread_setname_np(b, "updater");
    pthread_create(&c, 0, reader, 0);
    pthread_setname_np(c, "reader2");
    pthread_join(b, 0);
}
