/* SPDX-License-Identifier: MIT */
/* Threads, processes and how they end; argv[1] chooses. Prints "ok". */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static volatile int ready, released;

static void *work(void *name)
{
    prctl(PR_SET_NAME, name, 0, 0, 0);
    void *memory = malloc(1234);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (!released)
        sched_yield();
    free(memory);
    return NULL;
}

static void start(int detach_and_leave)
{
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, work, "first");
    pthread_create(&threads[1], NULL, work, "second");
    while (ready < 2)
        sched_yield();
    if (detach_and_leave) {
        printf("ok\n");
        fflush(stdout);
        _exit(3); /* the threads still spin */
    }
    released = 1;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

static int ends_with(pid_t child, int status)
{
    int found;
    return waitpid(child, &found, 0) == child && WIFEXITED(found) && WEXITSTATUS(found) == status;
}

static int spawn(const char *path)
{
    pid_t child;
    char *argv[] = {"sh", "-c", "exit 5", NULL};
    return posix_spawn(&child, path, NULL, NULL, argv, environ) == 0 && ends_with(child, 5);
}

static volatile sig_atomic_t signals, faults;
static char *guarded;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static void on_fault(int number)
{
    (void)number;
    faults++;
    mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
}

static int signals_and_faults(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, NULL);
    guarded = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 50; i++) {
        raise(SIGUSR1);
        *(volatile int *)guarded = i;
        mprotect(guarded, 4096, PROT_NONE);
    }
    return signals == 50 && faults == 50;
}

/* Most of the time inside a block that a system call ends, while signals come whose default is to
 * do nothing. (What is told to be ignored does not come.) */
static int ignored_signals(void)
{
    static char memory[1 << 20];
    struct itimerspec often = {{0, 1000000}, {0, 1000000}};
    struct sigevent told = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGWINCH};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &told, &timer) != 0)
        return 0;
    timer_settime(timer, 0, &often, NULL);
    for (int i = 0; i < 2000; i++) {
        char *to = memory;
        size_t bytes = sizeof memory;
        long result = SYS_getppid;
        __asm__ volatile("rep stosb; syscall"
                         : "+D"(to), "+c"(bytes), "+a"(result)
                         :
                         : "r11", "memory");
        if (result != getppid())
            return 0;
    }
    return timer_delete(timer) == 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int ok = 1;
    if (strcmp(what, "threads") == 0)
        start(0);
    else if (strcmp(what, "exit_group") == 0)
        start(1);
    else if (strcmp(what, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(malloc(99) != NULL ? 4 : 1);
        ok = ends_with(child, 4);
    } else if (strcmp(what, "spawn") == 0)
        ok = spawn("/bin/sh") && !spawn("/no/such/program");
    else if (strcmp(what, "vfork") == 0) {
        pid_t child = vfork();
        if (child == 0)
            _exit(6);
        ok = ends_with(child, 6);
    } else if (strcmp(what, "exec") == 0)
        execl("/bin/echo", "echo", "ok", NULL);
    else if (strcmp(what, "close_range") == 0)
        ok = close_range(3, ~0u, 0) == 0;
    else if (strcmp(what, "signals") == 0)
        ok = signals_and_faults();
    else if (strcmp(what, "ignored") == 0)
        ok = ignored_signals();
    else if (strcmp(what, "spin") == 0) {
        printf("ok\n");
        fflush(stdout);
        while (!released)
            sched_yield();
    }
    printf(ok ? "ok\n" : "wrong\n");
    return ok ? 0 : 1;
}
