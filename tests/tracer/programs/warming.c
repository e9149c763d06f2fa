/* SPDX-License-Identifier: MIT */
/* A thread wakes from time to time from the beginning on, as a virtual machine's service thread
 * does. Main comes to new code for some seconds, then waits for a flag that nobody sets.
 * Prints main's thread id. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { FUNCTIONS = 16000, SPACING = 16, SECONDS = 4, BETWEEN_US = 100, SERVICE_US = 10000 };

static volatile int stopped, ready;

static void *serve(void *unused)
{
    while (!stopped)
        usleep(SERVICE_US);
    return unused;
}

int main(void)
{
    static const uint8_t code[] = {0x8d, 0x47, 0x01, 0xc3}; /* lea eax, [rdi+1]; ret */
    uint8_t *functions =
        mmap(NULL, FUNCTIONS * SPACING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (functions == MAP_FAILED)
        return 1;
    for (int i = 0; i < FUNCTIONS; i++)
        memcpy(functions + i * SPACING, code, sizeof code);
    if (mprotect(functions, FUNCTIONS * SPACING, PROT_READ | PROT_EXEC))
        return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, serve, NULL);
    printf("%d\n", getpid());
    fflush(stdout);
    time_t end = time(NULL) + SECONDS;
    int sum = 0;
    for (int i = 0; i < FUNCTIONS && time(NULL) < end; i++) {
        sum = ((int (*)(int))(uintptr_t)(functions + i * SPACING))(sum);
        usleep(BETWEEN_US);
    }
    while (!ready)
        ;
    return sum & 1;
}
