// SPDX-License-Identifier: MIT
// Polls a word behind two pointers; prints where its variables and functions are ("name address").
#include <atomic>
#include <cstdio>
#include <memory>
#include <unistd.h>

struct session {
    long id;
    char peer[40];
    std::atomic<int> phase;
};
struct server {
    int socket;
    struct session *session;
    struct {
        std::atomic<bool> stop;
    } control[3];
};
struct server server;
std::atomic<long> ready;
std::atomic_flag busy = ATOMIC_FLAG_INIT;
std::unique_ptr<struct session> owner;

static void show(const char *name, const void *address) { printf("%s %p\n", name, address); }

extern "C" __attribute__((noinline)) void wait_until_open(struct server *server) {
    while (server->session->phase.load() != 9) pause();
}

int main() {
    alarm(30);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    server.session = new session();
    show("stop", &server.control[2].stop);
    show("ready", &ready);
    show("busy", &busy);
    show("owner", &owner);
    show("session", &server.session);
    show("wait", (void *)wait_until_open);
    wait_until_open(&server);
}
