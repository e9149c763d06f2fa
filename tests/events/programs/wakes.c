/* SPDX-License-Identifier: MIT */
/* Threads and processes that wake each other in one known way, ROUNDS times. Prints `NAME TID` for
 * each role.
 *
 * Nobody is woken before it sleeps (asleep.h), and who is woken by a timer goes on until it has
 * slept often enough: a tick that found nobody waiting woke nobody. */
#include "asleep.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

enum {
    ROUNDS = 10,
    PAUSE_US = 4000,
    LOOKED_UP_US = 900000 /* the recorder reads what descriptors are */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int value;
static int waker_fd;
static pid_t waiter_tid;
static pthread_barrier_t together;

/* How often this thread has given up its CPU to wait. */
static long sleeps(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_THREAD, &used))
        abort();
    return used.ru_nvcsw;
}

static void *signal_condition(void *unused)
{
    tell("waker");
    for (int i = 1; i <= ROUNDS; i++) {
        until_sleeping(waiter_tid, SYS_futex);
        pthread_mutex_lock(&lock);
        value = i;
        pthread_mutex_unlock(&lock);
        pthread_cond_signal(&changed);
    }
    return unused;
}

static void *hold_mutex(void *unused)
{
    tell("waker");
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&lock);
        pthread_barrier_wait(&together);
        until_sleeping(waiter_tid, SYS_futex);
        pthread_mutex_unlock(&lock);
        pthread_barrier_wait(&together);
    }
    return unused;
}

static void *write_number(void *unused)
{
    tell("waker");
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        until_sleeping(waiter_tid, SYS_read);
        if (write(waker_fd, &i, sizeof i) != sizeof i)
            abort();
    }
    return unused;
}

static void *send_signals(void *unused)
{
    tell("waker");
    for (int i = 0; i < ROUNDS; i++) {
        until_sleeping(waiter_tid, SYS_pause);
        syscall(SYS_tgkill, getpid(), waiter_tid, SIGUSR1);
    }
    return unused;
}

static void ignore(int number)
{
    (void)number;
}

static void read_once(int fd)
{
    uint64_t number;
    if (read(fd, &number, sizeof number) <= 0)
        abort();
}

static void read_all(int fd)
{
    for (int i = 0; i < ROUNDS; i++)
        read_once(fd);
}

/* A UDP socket bound to loopback; `to` becomes its address. */
static int bound_socket(struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    memset(to, 0, sizeof *to);
    to->sin_family = AF_INET;
    to->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof *to;
    if (bind(fd, (struct sockaddr *)to, size) || getsockname(fd, (struct sockaddr *)to, &size))
        abort();
    return fd;
}

/* first -> second -> third -> first: each link a process of its own. */
static void chain(void)
{
    int pipes[3][2];
    for (int i = 0; i < 3; i++)
        if (pipe(pipes[i]))
            abort();
    const char *names[] = {"second", "third"};
    pid_t next = getpid();
    for (int i = 1; i >= 0; i--) {
        pid_t child = fork();
        if (child) {
            next = child;
            continue;
        }
        tell(names[i]);
        uint64_t number;
        for (int round = 0; round < ROUNDS; round++) {
            if (read(pipes[i][0], &number, sizeof number) <= 0)
                abort();
            until_sleeping(next, SYS_read);
            if (write(pipes[i + 1][1], &number, sizeof number) <= 0)
                abort();
        }
        _exit(0);
    }
    tell("first");
    for (uint64_t round = 0; round < ROUNDS; round++) {
        until_sleeping(next, SYS_read);
        if (write(pipes[0][1], &round, sizeof round) <= 0 ||
            read(pipes[2][0], &round, sizeof round) <= 0)
            abort();
    }
    while (wait(NULL) > 0)
        ;
}

static volatile int is_written;

/* A connection over loopback: the connecting end, and the accepting one in `accepted`. */
static int connected_socket(int *accepted)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof to;
    int listening = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&to, size) ||
        getsockname(listening, (struct sockaddr *)&to, &size) || listen(listening, 1) ||
        connect(fd, (struct sockaddr *)&to, size))
        abort();
    *accepted = accept(listening, NULL, NULL);
    close(listening);
    return fd;
}

/* All is there before anybody reads. */
static void *write_early(void *unused)
{
    tell("waker");
    for (uint32_t i = 0; i < ROUNDS; i++)
        if (write(waker_fd, &i, sizeof i) != sizeof i)
            abort();
    is_written = 1;
    usleep(PAUSE_US);
    return unused;
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    pthread_t thread;
    int has_thread = 1;
    waiter_tid = getpid();
    if (strcmp(mode, "chain"))
        tell("waiter");
    if (!strcmp(mode, "condition")) {
        start(&thread, signal_condition, NULL);
        pthread_mutex_lock(&lock);
        for (int seen = 0; seen < ROUNDS; seen = value)
            while (value == seen)
                pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
    } else if (!strcmp(mode, "mutex")) {
        pthread_barrier_init(&together, NULL, 2);
        start(&thread, hold_mutex, NULL);
        for (int i = 0; i < ROUNDS; i++) {
            pthread_barrier_wait(&together);
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
            pthread_barrier_wait(&together);
        }
    } else if (!strcmp(mode, "early")) {
        const char *how = count > 2 ? words[2] : "pipe";
        int ends[2];
        uint32_t number;
        if (!strcmp(how, "pipe") && pipe(ends))
            abort();
        if (!strcmp(how, "stream") && socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
            abort();
        if (!strcmp(how, "datagram") && socketpair(AF_UNIX, SOCK_DGRAM, 0, ends))
            abort();
        if (!strcmp(how, "tcp"))
            ends[1] = connected_socket(&ends[0]);
        waker_fd = ends[1];
        start(&thread, write_early, NULL);
        while (!is_written)
            usleep(PAUSE_US);
        for (int i = 0; i < ROUNDS; i++)
            if (read(ends[0], &number, sizeof number) != sizeof number)
                abort();
        usleep(LOOKED_UP_US);
    } else if (!strcmp(mode, "eventfd")) {
        int fd = waker_fd = eventfd(0, 0);
        start(&thread, write_number, NULL);
        read_all(fd);
    } else if (!strcmp(mode, "socketpair")) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
            abort();
        waker_fd = ends[1];
        start(&thread, write_number, NULL);
        read_all(ends[0]);
    } else if (!strcmp(mode, "loopback")) {
        struct sockaddr_in address, other;
        int fd = bound_socket(&address);
        waker_fd = bound_socket(&other);
        if (connect(waker_fd, (struct sockaddr *)&address, sizeof address))
            abort();
        start(&thread, write_number, NULL);
        read_all(fd);
    } else if (!strcmp(mode, "signal")) {
        signal(SIGUSR1, ignore);
        start(&thread, send_signals, NULL);
        for (int i = 0; i < ROUNDS; i++)
            pause();
    } else if (!strcmp(mode, "timer")) {
        has_thread = 0;
        int fd = timerfd_create(CLOCK_MONOTONIC, 0);
        struct itimerspec every = {{0, PAUSE_US * 1000}, {0, PAUSE_US * 1000}};
        timerfd_settime(fd, 0, &every, NULL);
        for (long before = sleeps(); sleeps() < before + ROUNDS;)
            read_once(fd);
    } else if (!strcmp(mode, "sleep")) {
        has_thread = 0;
        for (long before = sleeps(); sleeps() < before + ROUNDS;)
            usleep(PAUSE_US);
    } else if (!strcmp(mode, "chain")) {
        has_thread = 0;
        chain();
    } else {
        return 2;
    }
    if (has_thread)
        pthread_join(thread, NULL);
    return 0;
}
