// SPDX-License-Identifier: MIT
#include <barrier>
#include <mutex>
#include <thread>
#include <truth.h>
#include <vector>

static std::mutex forks[5];
static std::barrier all{5};

static void dine(int seat)
{
    std::scoped_lock left(forks[seat]);
    all.arrive_and_wait();
    if (seat == 2)
        LAB_ROLE("waiter");
    std::scoped_lock right(forks[(seat + 1) % 5]);
    printf("%d eats\n", seat);
}

int main()
{
    std::vector<std::jthread> seats;
    for (int seat = 0; seat < 5; seat++)
        seats.emplace_back(dine, seat);
    usleep(300000);
    LAB_READY();
}
