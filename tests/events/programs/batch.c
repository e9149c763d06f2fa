/* SPDX-License-Identifier: MIT */
/* Two clients ask a server that answers both requests in one wake-up, ROUNDS times. Prints `server
 * TID`, `first TID` and `second TID`.
 *
 * processes: the clients are processes, each with a pair of sockets. turns: they are threads of one
 *   process, and the server looks for events between them. shared: they are threads that send
 *   datagrams through one socket, and each has a pair of its own for the answers.
 *
 * A client that asks says so in memory, so that the server, once it is awake, can wait for the
 * other without blocking. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ROUNDS = 10,
    CLIENTS = 2,
    PAUSE_US = 4000,
    LOOKED_UP_US = 900000 /* the recorder reads what descriptors are */
};

/* Shared by all processes. */
static _Atomic uint32_t *asked;
static int requests[CLIENTS][2], answers[CLIENTS][2];

static void tell(const char *role)
{
    char line[64];
    int bytes = snprintf(line, sizeof line, "%s %ld\n", role, syscall(SYS_gettid));
    if (write(1, line, bytes) != bytes)
        abort();
}

static void *ask(void *which)
{
    int number = *(int *)which;
    tell(number ? "second" : "first");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t message = round * CLIENTS + number, answer;
        usleep(PAUSE_US);
        if (write(requests[number][1], &message, sizeof message) != sizeof message)
            abort();
        atomic_fetch_add(asked, 1);
        if (read(answers[number][1], &answer, sizeof answer) != sizeof answer)
            abort();
    }
    usleep(LOOKED_UP_US);
    return NULL;
}

static void answer_one(int number)
{
    uint32_t message;
    if (read(requests[number][0], &message, sizeof message) != sizeof message)
        abort();
    int who = message % CLIENTS;
    if (write(answers[who][0], &message, sizeof message) != sizeof message)
        abort();
}

static void serve(int has_turns)
{
    struct pollfd both[CLIENTS] = {{requests[0][0], POLLIN, 0}, {requests[1][0], POLLIN, 0}};
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        if (poll(both, CLIENTS, -1) <= 0)
            abort();
        while (atomic_load(asked) < round * CLIENTS)
            ;
        answer_one(0);
        if (has_turns && poll(both, CLIENTS, 0) <= 0)
            abort();
        answer_one(1);
    }
}

static void pair(int kind, int ends[2])
{
    if (socketpair(AF_UNIX, kind, 0, ends))
        abort();
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    int is_shared = !strcmp(mode, "shared"), has_turns = !strcmp(mode, "turns");
    int numbers[CLIENTS] = {0, 1};
    asked = mmap(NULL, sizeof *asked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (asked == MAP_FAILED)
        return 2;
    for (int i = 0; i < CLIENTS; i++) {
        pair(is_shared ? SOCK_DGRAM : SOCK_STREAM, requests[i]);
        memcpy(answers[i], requests[i], sizeof answers[i]);
    }
    if (is_shared) {
        memcpy(requests[1], requests[0], sizeof requests[1]);
        for (int i = 0; i < CLIENTS; i++)
            pair(SOCK_STREAM, answers[i]);
    }
    if (!strcmp(mode, "processes")) {
        for (int i = 0; i < CLIENTS; i++)
            if (!fork()) {
                close(requests[!i][0]);
                close(requests[!i][1]);
                close(requests[i][0]);
                ask(&numbers[i]);
                _exit(0);
            }
    } else if (is_shared || has_turns) {
        if (!fork()) {
            pthread_t threads[CLIENTS];
            for (int i = 0; i < CLIENTS; i++)
                if (pthread_create(&threads[i], NULL, ask, &numbers[i]))
                    abort();
            for (int i = 0; i < CLIENTS; i++)
                pthread_join(threads[i], NULL);
            _exit(0);
        }
    } else {
        return 2;
    }
    tell("server");
    serve(has_turns);
    while (wait(NULL) > 0)
        ;
    return 0;
}
