// SPDX-License-Identifier: MIT
// Prints where its variables lie ("name address"), then waits to be killed.
#include <atomic>
#include <cstdio>
#include <unistd.h>

namespace app {
/// The address behind its own instruction.
static inline __attribute__((always_inline)) void *here() {
    void *address;
    asm volatile("lea 0(%%rip), %0" : "=r"(address));
    return address;
}
struct Versioned {
    long version = 1;
};
struct Server : Versioned {
    static int count;
    char pad[24] = {};
    std::atomic<bool> done{false};
    int poll(int turns);
    __attribute__((always_inline)) void *place() { return here(); }
};
int Server::count = 0;
__attribute__((noinline)) int Server::poll(int turns) {
    while (!done && turns--) usleep(1000);
    return turns;
}
Server server;
} // namespace app

int main() {
    alarm(30);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int (app::Server::*method)(int) = &app::Server::poll;
    printf("done %p\n", static_cast<void *>(&app::server.done));
    printf("count %p\n", static_cast<void *>(&app::Server::count));
    printf("base %p\n", static_cast<void *>(&app::server.version));
    printf("method %p\n", *reinterpret_cast<void **>(&method));
    printf("inlined %p\n", app::server.place());
    puts("ready 0");
    return app::server.poll(30000);
}
