/* SPDX-License-Identifier: MIT */
/* Prints where its variables lie ("name address"), then waits to be killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct worker {
    int refs;
    unsigned ready : 1, done : 1;
    int state;
};
struct pool {
    long id;
    struct worker workers[4];
    struct {
        int hidden;
    };
    union {
        int number;
        float fraction;
    } either;
};
struct pool pool = {.id = 1};
static int grid[3][4];
const int limits[3] = {1, 2, 3};
static volatile int counter;
_Thread_local struct worker own = {.refs = 1};
_Thread_local long big_own[100];
static pthread_barrier_t printed;

static void show(const char *name, const void *address) { printf("%s %p\n", name, address); }

static void *fs_base(void) {
    void *base;
    __asm__("mov %%fs:0, %0" : "=r"(base));
    return base;
}

__attribute__((noinline)) static void wait_with(const char *who) {
    struct {
        long pad;
        volatile int flags[4];
    } local = {0};
    char name[64];
    const char *fields[] = {"tid", "fs_base", "sp", "cfa", "pc", "local", "own", "big_own"};
    const void *values[] = {(void *)(long)syscall(SYS_gettid),
                            fs_base(),
                            (void *)&local,
                            (char *)__builtin_frame_address(0) + 16,
                            (char *)wait_with + 4,
                            (void *)&local.flags[3],
                            &own.state,
                            &big_own[7]};
    for (unsigned i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(name, sizeof name, "%s.%s", who, fields[i]);
        show(name, values[i]);
    }
    pthread_barrier_wait(&printed);
    while (!local.flags[3]) pause();
}

static void *worker(void *argument) {
    pthread_setname_np(pthread_self(), "worker");
    wait_with("worker");
    return argument;
}

int main(void) {
    alarm(30);
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_barrier_init(&printed, NULL, 2);
    show("state", &pool.workers[2].state);
    show("bits", (char *)&pool.workers[1].refs + 4);
    show("hidden", &pool.hidden);
    show("either", &pool.either);
    show("grid", &grid[1][2]);
    show("limits", &limits[1]);
    show("counter", (void *)&counter);
    show("errno", &errno);
    show("heap", malloc(64));
    show("shared", mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    show("private",
         mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    show("jit", mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    show("main", (char *)main + 4);
    show("nowhere", (void *)16);
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker, NULL)) return 1;
    pthread_barrier_wait(&printed);
    pthread_barrier_destroy(&printed);
    pthread_barrier_init(&printed, NULL, 1);
    grid[0][0] = counter;
    wait_with("first");
}
