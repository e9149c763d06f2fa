/* SPDX-License-Identifier: MIT */
/* Forks, while other threads start threads, children that start one, too. `report` writes the word
 * if one did not end well. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 40, STARTERS = 3, SECONDS = 20 };

volatile int word;
static volatile int stop;

static void *write_word(void *unused)
{
    word++;
    return unused;
}

__attribute__((noinline)) static void report(void)
{
    word = -1;
}

static void start_one(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, write_word, NULL) == 0)
        pthread_join(thread, NULL);
}

static void *start_many(void *unused)
{
    while (!stop)
        start_one();
    return unused;
}

int main(void)
{
    pthread_t threads[STARTERS];
    int failed = 0;
    for (int i = 0; i < STARTERS; i++)
        pthread_create(&threads[i], NULL, start_many, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS);
            start_one();
            _exit(0);
        }
        int status = 1;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    stop = 1;
    for (int i = 0; i < STARTERS; i++)
        pthread_join(threads[i], NULL);
    if (failed)
        report();
    return failed != 0;
}
