/* SPDX-License-Identifier: MIT */
/* Jobs wait on the heap for a worker, which signs them off one by one. In spin mode the third job's
 * input is a pipe that stays silent, so the worker blocks while it handles it. */
#include "announce.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOBS 5

struct job {
    int input;
    char text[200];
    short attempts;
    short status; /* 0 pending, 2 done */
};

static struct job *queue[JOBS];
static int queued;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_changed = PTHREAD_COND_INITIALIZER;

static struct job *job_create(int input)
{
    struct job *job = calloc(1, sizeof *job);
    job->input = input;
    return job;
}

static void *run_jobs(void *unused)
{
    for (int number = 0; number < JOBS; number++) {
        pthread_mutex_lock(&queue_lock);
        while (queued <= number)
            pthread_cond_wait(&queue_changed, &queue_lock);
        struct job *job = queue[number];
        pthread_mutex_unlock(&queue_lock);
        job->attempts++;
        if (read(job->input, job->text, sizeof job->text) < 0)
            return unused;
        usleep(40000);
        __atomic_store_n(&job->status, 2, __ATOMIC_RELEASE);
    }
    return unused;
}

__attribute__((noinline)) static void finish(struct job *job)
{
    while (__atomic_load_n(&job->status, __ATOMIC_ACQUIRE) == 0)
        usleep(200);
    free(job);
}

int main(int argc, char **argv)
{
    int hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    pthread_t thread;
    pthread_create(&thread, NULL, run_jobs, NULL);
    for (int number = 0; number < JOBS; number++) {
        int ends[2];
        if (pipe(ends) != 0)
            return 1;
        void *noise = malloc(1000);
        struct job *job = job_create(ends[0]);
        if (number == 2)
            announce_flag(&job->status, sizeof job->status);
        if (!(hang && number == 2) && write(ends[1], "input", 5) != 5)
            return 1;
        pthread_mutex_lock(&queue_lock);
        queue[queued++] = job;
        pthread_cond_signal(&queue_changed);
        pthread_mutex_unlock(&queue_lock);
        finish(job);
        free(noise);
        close(ends[0]);
        close(ends[1]);
    }
    pthread_join(thread, NULL);
    return 0;
}
