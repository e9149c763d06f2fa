/* SPDX-License-Identifier: MIT */
/* Goes slowly through shared memory that nobody has touched, for a word that never comes. On a
 * line of input it tells how many pages it has looked at. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 1 << 20, AT_ONCE = 64 };
static volatile char *memory;
static volatile long looked;

static void *walk(void *unused)
{
    for (long page = 0; page < PAGES; page++) {
        if (memory[page * PAGE])
            return unused;
        looked = page + 1;
        if (looked % AT_ONCE == 0)
            usleep(50000);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    char line[16];
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    pthread_create(&thread, NULL, walk, NULL);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("%ld\n", looked);
        fflush(stdout);
    }
    return 0;
}
