// SPDX-License-Identifier: MIT
// One thread polls a flag that the other was to set; that one waits for a line that never comes.
#include <atomic>
#include <iostream>
#include <string>
#include <thread>

static std::atomic<bool> ready;

int main(int count, char **)
{
    std::thread setter([] {
        std::string line;
        std::getline(std::cin, line);
        ready = true;
    });
    if (count > 1)
        ready = true;
    while (!ready)
        ;
    setter.join();
    return 0;
}
