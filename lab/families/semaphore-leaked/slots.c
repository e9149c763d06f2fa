/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <semaphore.h>
#include <truth.h>

static sem_t slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t said = PTHREAD_COND_INITIALIZER;
static int lines;

static void say(void)
{
    pthread_mutex_lock(&lock);
    lines++;
    pthread_cond_signal(&said);
    pthread_mutex_unlock(&lock);
}

static void *logger(void *unused)
{
    LAB_ROLE("logger");
    for (;;) {
        pthread_mutex_lock(&lock);
        while (lines == 0)
            pthread_cond_wait(&said, &lock);
        lines--;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static int request(int number)
{
    sem_wait(&slots);
    usleep(20000);
    say();
    if (number % 3 == 0)
        return -1; /* and the slot is kept */
    sem_post(&slots);
    return 0;
}

static void *client(void *id)
{
    for (int number = 1; number < 8; number++)
        request(number + (int)(long)id);
    return NULL;
}

int main(void)
{
    pthread_t writes, clients[4];
    sem_init(&slots, 0, 3);
    pthread_create(&writes, NULL, logger, NULL);
    for (long id = 0; id < 4; id++)
        pthread_create(&clients[id], NULL, client, (void *)id);
    usleep(500000);
    LAB_ROLE("waiter");
    LAB_READY();
    for (int id = 0; id < 4; id++)
        pthread_join(clients[id], NULL);
}
