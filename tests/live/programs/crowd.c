/* SPDX-License-Identifier: MIT */
// SPDX-License-Identifier: MIT
// Many threads that wait, with small stacks: `crowd condition 2000`, `crowd pipe 2000`.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ends[2];
static int on_pipe;

static void *wait_for_ever(void *unused) {
    char byte;
    if (on_pipe) {
        return read(ends[0], &byte, 1) ? NULL : unused;
    }
    pthread_mutex_lock(&lock);
    for (;;) {
        pthread_cond_wait(&changed, &lock);
    }
}

int main(int count, char **words) {
    if (count != 3 || pipe(ends) != 0) {
        return 2;
    }
    on_pipe = strcmp(words[1], "pipe") == 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int left = atoi(words[2]); left > 0; left--) {
        pthread_t thread;
        if (pthread_create(&thread, &small, wait_for_ever, NULL) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    wait_for_ever(NULL);
}
