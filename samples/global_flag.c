/* SPDX-License-Identifier: MIT */
/* A server waits for its configuration. The loader reads it from a helper's pipe, and in spin mode
 * the helper never writes and never closes its end. */
#include "announce.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTING "key=value"

int config_ready;
int log_level = 2;
static char settings[256];
static int helper_pipe[2];

static void parse_line(const char *line, int number)
{
    char *copy = strdup(line);
    snprintf(settings + number * 32, 32, "%d:%s", number, copy);
    free(copy);
}

static void *load_config(void *unused)
{
    char line[sizeof SETTING];
    for (int number = 0; number < 4; number++) {
        // One at a time, also when two have come.
        ssize_t got = read(helper_pipe[0], line, strlen(SETTING));
        if (got <= 0)
            break;
        line[got] = 0;
        parse_line(line, number);
    }
    __atomic_store_n(&config_ready, 1, __ATOMIC_RELEASE);
    return unused;
}

__attribute__((noinline)) static void wait_for_config(void)
{
    unsigned long rounds = 0;
    while (!__atomic_load_n(&config_ready, __ATOMIC_ACQUIRE)) {
        rounds++;
        if (log_level > 3)
            fprintf(stderr, "still waiting, round %lu\n", rounds);
        sched_yield();
    }
}

int main(int argc, char **argv)
{
    int hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    announce_flag(&config_ready, sizeof config_ready);
    if (pipe(helper_pipe) != 0)
        return 1;
    pthread_t loader;
    pthread_create(&loader, NULL, load_config, NULL);
    for (int number = 0; number < (hang ? 3 : 4); number++) {
        usleep(60000);
        if (write(helper_pipe[1], SETTING, strlen(SETTING)) != (ssize_t)strlen(SETTING))
            return 1;
    }
    wait_for_config();
    pthread_join(loader, NULL);
    return puts(settings) < 0;
}
