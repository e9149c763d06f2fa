/* SPDX-License-Identifier: MIT */
/* Wide and odd programs, one for each name: wide threads | short | deep | vfork | spawn | clone3 |
 * stack | modules FILES.. | sandbox. Each prints what it computed, which must be the same recorded
 * or not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 64
#define SHORT 3000
#define DEPTH 40000
#define STACK (128UL << 20)

static long sum;
static pthread_barrier_t all_here;

static void *meet(void *number)
{
    pthread_barrier_wait(&all_here);
    __atomic_add_fetch(&sum, (long)number, __ATOMIC_RELAXED);
    return NULL;
}

static void *add(void *number)
{
    __atomic_add_fetch(&sum, (long)number, __ATOMIC_RELAXED);
    return NULL;
}

static void threads(void)
{
    pthread_t ids[THREADS];
    pthread_barrier_init(&all_here, NULL, THREADS);
    for (long number = 0; number < THREADS; number++)
        pthread_create(&ids[number], NULL, meet, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(ids[number], NULL);
}

static void short_lived(void)
{
    for (long number = 0; number < SHORT; number++) {
        pthread_t id;
        if (pthread_create(&id, NULL, add, (void *)number) == 0)
            pthread_join(id, NULL);
    }
}

__attribute__((noinline)) static long descend(long depth)
{
    volatile long here = depth;
    return depth == 0 ? 0 : descend(depth - 1) + (here & 1);
}

/* Fills nearly all of its stack. */
static void *fill(void *unused)
{
    size_t size = STACK - (1 << 20);
    volatile char *all = __builtin_alloca(size);
    for (size_t at = 0; at < size; at += 4096)
        all[size - 1 - at] = 1;
    for (size_t at = 0; at < size; at += 4096)
        sum += all[size - 1 - at];
    return unused;
}

static void large_stack(void)
{
    pthread_attr_t attributes;
    pthread_t id;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    if (pthread_create(&id, &attributes, fill, NULL) == 0)
        pthread_join(id, NULL);
}

static long status_of(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void with_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
        _exit(9);
    }
    sum = status_of(child);
}

static void with_spawn(void)
{
    char *words[] = {"sh", "-c", "exit 6", NULL}, *none[] = {NULL};
    pid_t child = 0;
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, words, none) == 0)
        sum = status_of(child);
}

/* A fork with flags that fork cannot have. */
static void with_clone3(void)
{
    int parent_knows = 0;
    struct clone_args arguments = {
        .flags = CLONE_PARENT_SETTID | CLONE_CLEAR_SIGHAND,
        .parent_tid = (uintptr_t)&parent_knows,
        .exit_signal = SIGCHLD,
    };
    signal(SIGUSR2, SIG_IGN);
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(7);
    sum = child < 0 ? -1 : status_of((pid_t)child) + (parent_knows == (int)child ? 10 : 0);
}

static void modules(char **files)
{
    for (; *files != NULL; files++) {
        void *library = dlopen(*files, RTLD_NOW);
        long (*one)(void) = library == NULL ? NULL : (long (*)(void))dlsym(library, "one");
        sum += one == NULL ? 0 : one();
    }
}

/* From here on only what a computation needs is allowed; all else is refused. */
static void sandbox(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return;
    for (long number = 0; number < 1000000; number++)
        sum += descend(number % 7);
    sum += getppid() == -1;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "short") == 0)
        short_lived();
    else if (strcmp(what, "deep") == 0)
        sum = descend(DEPTH);
    else if (strcmp(what, "vfork") == 0)
        with_vfork();
    else if (strcmp(what, "spawn") == 0)
        with_spawn();
    else if (strcmp(what, "clone3") == 0)
        with_clone3();
    else if (strcmp(what, "stack") == 0)
        large_stack();
    else if (strcmp(what, "modules") == 0)
        modules(argv + 2);
    else if (strcmp(what, "sandbox") == 0)
        sandbox();
    return printf("%s %ld\n", what, sum) < 0;
}
