// SPDX-License-Identifier: MIT
#include <boost/smart_ptr/detail/spinlock_pool.hpp>
#include <stdexcept>
#include <thread>
#include <truth.h>

using locks = boost::detail::spinlock_pool<7>;
static int table[16];

static void update()
{
    boost::detail::spinlock &lock = locks::spinlock_for(table);
    lock.lock();
    try {
        if (table[3] == 0)
            throw std::runtime_error("no such entry");
        table[3]++;
    } catch (const std::exception &) {
        return; // the lock is forgotten
    }
    lock.unlock();
}

int main()
{
    std::thread(update).join();
    boost::detail::spinlock &lock = locks::spinlock_for(table);
    LAB_ROLE("waiter");
    LAB_WORD("lock", &lock.v_, sizeof lock.v_);
    LAB_READY();
    lock.lock();
    sleep(5);
    return 0;
}
