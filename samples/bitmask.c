/* SPDX-License-Identifier: MIT */
/* Subsystems report in one word, a bit each. The logger's update works on a copy that it took
 * before a look-up, and in spin mode that look-up has another subsystem started, whose bit is lost.
 * */
#include "announce.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define NETWORK 0x1u
#define STORAGE 0x10u
#define LOGGING 0x100u
#define EVERYTHING (NETWORK | STORAGE | LOGGING)

unsigned subsystems = 0x4000;
static pthread_t network, storage;
static int logs_to_storage;

static void *start_network(void *unused)
{
    usleep(60000);
    __atomic_fetch_or(&subsystems, NETWORK, __ATOMIC_ACQ_REL);
    return unused;
}

static void *start_storage(void *unused)
{
    usleep(80000);
    __atomic_fetch_or(&subsystems, STORAGE, __ATOMIC_ACQ_REL);
    return unused;
}

static void look_up_destination(void)
{
    if (!logs_to_storage)
        return;
    pthread_create(&storage, NULL, start_storage, NULL);
    pthread_join(storage, NULL);
}

static void *start_logging(void *unused)
{
    pthread_join(network, NULL);
    usleep(40000);
    unsigned seen = __atomic_load_n(&subsystems, __ATOMIC_ACQUIRE);
    look_up_destination();
    __atomic_store_n(&subsystems, seen | LOGGING, __ATOMIC_RELEASE);
    if (!logs_to_storage)
        pthread_create(&storage, NULL, start_storage, NULL);
    return unused;
}

__attribute__((noinline)) static void wait_for_subsystems(void)
{
    while ((__atomic_load_n(&subsystems, __ATOMIC_ACQUIRE) & EVERYTHING) != EVERYTHING)
        __builtin_ia32_pause();
}

int main(int argc, char **argv)
{
    announce_flag(&subsystems, sizeof subsystems);
    logs_to_storage = argc > 1 && strcmp(argv[1], "spin") == 0;
    pthread_t logging;
    pthread_create(&network, NULL, start_network, NULL);
    pthread_create(&logging, NULL, start_logging, NULL);
    wait_for_subsystems();
    pthread_join(logging, NULL);
    pthread_join(storage, NULL);
    puts("up");
    return 0;
}
