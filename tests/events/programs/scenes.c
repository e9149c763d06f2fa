/* SPDX-License-Identifier: MIT */
/* Hangs of real programs in small: ROUNDS rounds go as they should, one does not. Prints `main TID`
 * and the thread to blame as `culprit TID`.
 *
 * key: a process types; to one key main answers with a long computation (and is to blame; `typist
 *   TID` types).
 * ticks: main's event loop is fed by a timer; for each tick it asks a worker, which once computes.
 * request: main asks another process, which once asks main something before it answers; a time
 *   limit ends it.
 * connection: main asks a thread that keeps a connection to a server; the server is silent once,
 *   until the thread gives it up.
 * datagram: main yields until a flag is set by a thread that waits for a datagram, which once comes
 *   late.
 * kinds: main asks one of two threads and waits for either in one place; the other kind than asked
 *   before is late once (`innocent TID`).
 * late: main sleeps for long, and once it is done polls for a flag, which a thread (`setter TID`)
 *   sets late.
 * ended: main asks a process that is late once; a child of it has ended long before (`innocent
 *   TID`). */
#include "crowd.h"
#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

enum {
    ROUNDS = 15,
    HANG = 12,
    WORK_US = 2000,
    HANG_MS = 400,
    LOADED_US = 200000,
    TICK_MS = 20,
    LATE_US = 900000
};

static volatile uint64_t sink;

static void compute(void)
{
    struct timespec now;
    uint64_t end = 0;
    do {
        for (int i = 0; i < 100000; i++)
            sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        if (!end)
            end = now.tv_sec * 1000ull + now.tv_nsec / 1000000 + HANG_MS;
    } while (now.tv_sec * 1000ull + now.tv_nsec / 1000000 < end);
}

static void give(int fd, int round)
{
    if (write(fd, &round, sizeof round) != sizeof round)
        abort();
}

/* -1: the other end has gone. */
static int take(int fd)
{
    int round;
    return read(fd, &round, sizeof round) == sizeof round ? round : -1;
}

/* Waits for something to read, at most HANG_MS. */
static int is_there(int fd)
{
    struct pollfd wanted = {fd, POLLIN, 0};
    return poll(&wanted, 1, HANG_MS) > 0;
}

static void join(int type, int ends[2])
{
    if (socketpair(AF_UNIX, type, 0, ends))
        abort();
}

static void begin(void *(*function)(void *))
{
    pthread_t thread;
    start(&thread, function, NULL);
}

static void key(void)
{
    int keys[2], shown[2];
    if (pipe(keys) || pipe(shown))
        abort();
    if (!fork()) {
        tell("typist");
        for (int round = 0; round < ROUNDS; round++) {
            usleep(WORK_US);
            give(keys[1], round);
            take(shown[0]);
        }
        _exit(0);
    }
    tell("culprit");
    for (int round = 0; round < ROUNDS; round++) {
        if (take(keys[0]) == HANG)
            compute();
        give(shown[1], round);
    }
    wait(NULL);
}

static int asked[2], answered[2];

static void *work(void *unused)
{
    tell("culprit");
    for (int round; (round = take(asked[0])) >= 0;) {
        usleep(WORK_US);
        if (round == HANG)
            compute();
        give(answered[1], round);
    }
    return unused;
}

static void ticks(void)
{
    if (pipe(asked) || pipe(answered))
        abort();
    begin(work);
    int loop = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec every = {{0, TICK_MS * 1000000}, {0, TICK_MS * 1000000}};
    struct epoll_event event = {EPOLLIN, {.fd = timer}};
    if (timerfd_settime(timer, 0, &every, NULL) || epoll_ctl(loop, EPOLL_CTL_ADD, timer, &event))
        abort();
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t count;
        if (epoll_wait(loop, &event, 1, -1) != 1 ||
            read(timer, &count, sizeof count) != sizeof count)
            abort();
        give(asked[1], round);
        take(answered[0]);
    }
}

static void request(void)
{
    int up[2], down[2];
    join(SOCK_STREAM, up);
    join(SOCK_STREAM, down);
    if (!fork()) {
        tell("culprit");
        for (int round = 0; round < ROUNDS; round++) {
            take(up[1]);
            usleep(WORK_US);
            if (round == HANG) {
                give(down[1], round);
                take(down[1]);
            }
            give(up[1], round);
        }
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        give(up[0], round);
        if (!is_there(up[0])) {
            take(down[0]);
            give(down[0], round);
        }
        take(up[0]);
    }
    wait(NULL);
}

static int connection;

static void *keep_connection(void *unused)
{
    tell("keeper");
    for (int round; (round = take(asked[0])) >= 0;) {
        give(connection, round);
        if (is_there(connection))
            take(connection);
        give(answered[1], round);
    }
    return unused;
}

static void lose_connection(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    connection = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&address, length) || listen(server, 1) ||
        getsockname(server, (struct sockaddr *)&address, &length) || pipe(asked) || pipe(answered))
        abort();
    if (!fork()) {
        close(connection);
        tell("culprit");
        int client = accept(server, NULL, NULL);
        for (int round; (round = take(client)) >= 0;) {
            usleep(WORK_US);
            if (round != HANG)
                give(client, round);
        }
        _exit(0);
    }
    if (connect(connection, (struct sockaddr *)&address, length))
        abort();
    begin(keep_connection);
    for (int round = 0; round < ROUNDS; round++) {
        give(asked[1], round);
        take(answered[0]);
    }
    close(connection);
    wait(NULL);
}

static int datagrams[2];
static atomic_int arrived;

static void *receive(void *unused)
{
    for (int round; (round = take(datagrams[1])) >= 0;)
        arrived = round + 1;
    return unused;
}

static void datagram(void)
{
    int wanted[2];
    join(SOCK_DGRAM, datagrams);
    join(SOCK_DGRAM, wanted);
    if (!fork()) {
        for (int round = 0; round < ROUNDS; round++) {
            take(wanted[1]);
            usleep(round == HANG ? HANG_MS * 1000 : WORK_US);
            give(datagrams[0], round);
        }
        _exit(0);
    }
    tell("culprit");
    begin(receive);
    for (int round = 0; round < ROUNDS; round++) {
        give(wanted[0], round);
        while (arrived <= round)
            sched_yield();
    }
    wait(NULL);
}

static int to[2][2], from[2][2];

static void *answer(void *role)
{
    int kind = role != NULL;
    tell(kind ? "culprit" : "innocent");
    for (int round; (round = take(to[kind][0])) >= 0;) {
        usleep(round == HANG ? HANG_MS * 1000 : WORK_US);
        give(from[kind][1], round);
    }
    return role;
}

__attribute__((noinline)) static void await_answer(void)
{
    struct pollfd wanted[] = {{from[0][0], POLLIN, 0}, {from[1][0], POLLIN, 0}};
    if (poll(wanted, 2, -1) <= 0)
        abort();
    take(wanted[wanted[1].revents != 0].fd);
}

__attribute__((noinline)) static void ask_one(int round)
{
    give(to[0][1], round);
    await_answer();
    sink++;
}

__attribute__((noinline)) static void ask_other(int round)
{
    give(to[1][1], round);
    await_answer();
    sink++;
}

/* Both kinds go well at first; just before the hang only the one does. */
static void kinds(void)
{
    pthread_t threads[2];
    for (int kind = 0; kind < 2; kind++)
        if (pipe(to[kind]) || pipe(from[kind]) ||
            pthread_create(&threads[kind], NULL, answer, kind ? &to : NULL))
            abort();
    for (int round = 0; round < ROUNDS; round++)
        if (round == HANG || (round < HANG / 2 && round % 2))
            ask_other(round);
        else
            ask_one(round);
}

static void *set_flag(void *unused)
{
    tell("setter");
    usleep(LATE_US + HANG_MS * 1000);
    arrived = 1;
    return unused;
}

static void late(void)
{
    tell("culprit");
    begin(set_flag);
    usleep(LATE_US);
    while (!arrived)
        usleep(1000);
}

static void ended(void)
{
    int child[2];
    if (pipe(asked) || pipe(answered) || pipe(child))
        abort();
    if (!fork()) {
        tell("innocent");
        give(child[1], 0);
        _exit(0);
    }
    take(child[0]);
    if (!fork()) {
        close(asked[1]);
        work(NULL);
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        give(asked[1], round);
        take(answered[0]);
    }
    close(asked[1]);
    wait(NULL);
    wait(NULL);
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    tell("main");
    come_together();
    usleep(LOADED_US); /* meanwhile the recorder learns where code is */
    if (!strcmp(mode, "key"))
        key();
    else if (!strcmp(mode, "ticks"))
        ticks();
    else if (!strcmp(mode, "request"))
        request();
    else if (!strcmp(mode, "connection"))
        lose_connection();
    else if (!strcmp(mode, "datagram"))
        datagram();
    else if (!strcmp(mode, "kinds"))
        kinds();
    else if (!strcmp(mode, "late"))
        late();
    else if (!strcmp(mode, "ended"))
        ended();
    else
        return 2;
    fflush(stdout);
    _exit(0);
}
