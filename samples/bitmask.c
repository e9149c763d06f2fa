/* Subsystems report in one word, a bit each. The logger's update works on a copy it took before a slow look-up,
 * and in spin mode another subsystem's bit arrives in between and is lost. */
#include "announce.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define NETWORK 0x1u
#define STORAGE 0x10u
#define LOGGING 0x100u
#define EVERYTHING (NETWORK | STORAGE | LOGGING)

unsigned subsystems = 0x4000;
static unsigned lookup_usec = 1000;

static void *start_network(void *unused)
{
    usleep(60000);
    __atomic_fetch_or(&subsystems, NETWORK, __ATOMIC_ACQ_REL);
    return unused;
}

static void *start_storage(void *unused)
{
    usleep(180000);
    __atomic_fetch_or(&subsystems, STORAGE, __ATOMIC_ACQ_REL);
    return unused;
}

static void *start_logging(void *unused)
{
    usleep(100000);
    unsigned seen = __atomic_load_n(&subsystems, __ATOMIC_ACQUIRE);
    usleep(lookup_usec);
    __atomic_store_n(&subsystems, seen | LOGGING, __ATOMIC_RELEASE);
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
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        lookup_usec = 200000;
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, start_network, NULL);
    pthread_create(&threads[1], NULL, start_storage, NULL);
    pthread_create(&threads[2], NULL, start_logging, NULL);
    wait_for_subsystems();
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    puts("up");
    return 0;
}
