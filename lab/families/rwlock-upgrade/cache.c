/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <truth.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both;
static int entry;

static void *look_up(void *argument)
{
    pthread_rwlock_rdlock(&lock);
    pthread_barrier_wait(&both);
    if (entry == 0) {
        if (argument)
            LAB_ROLE("waiter");
        pthread_rwlock_wrlock(&lock);
        entry = 1;
        pthread_rwlock_unlock(&lock);
    }
    pthread_rwlock_unlock(&lock);
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&threads[0], NULL, look_up, NULL);
    pthread_create(&threads[1], NULL, look_up, &both);
    usleep(300000);
    LAB_READY();
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return 0;
}
