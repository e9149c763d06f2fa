// SPDX-License-Identifier: MIT
// Whoever browses a catalogue shares its lock, and reads from a silent pipe with it.
#include <chrono>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <sys/prctl.h>
#include <thread>
#include <signal.h>
#include "truth.h"

static void ms(int time) { std::this_thread::sleep_for(std::chrono::milliseconds(time)); }

int main()
{
    std::shared_mutex catalogue;
    int ends[2];
    if (pipe(ends))
        return 9;
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "feed");
        LAB_ROLE("feed");
        ms(1400);
        if (write(ends[1], "", 1) == 1)
            ms(100000);
    }
    LAB_ROLE("service");
    std::thread([&] {
        prctl(PR_SET_NAME, "browse");
        LAB_ROLE("browse");
        ms(600);
        std::shared_lock held(catalogue);
        char byte;
        if (read(ends[0], &byte, 1) != 1)
            _exit(9);
    }).detach();
    std::thread([&] {
        prctl(PR_SET_NAME, "viewer");
        LAB_ROLE("viewer");
        for (;;) {
            ms(8);
            std::shared_lock held(catalogue);
        }
    }).detach();
    for (int i = 0; i < 120; i++) {
        std::unique_lock held(catalogue);
        held.unlock();
        ms(10);
    }
    LAB_READY();
    _exit(0);
}
