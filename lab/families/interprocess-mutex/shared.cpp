// SPDX-License-Identifier: MIT
#include <boost/interprocess/sync/interprocess_mutex.hpp>
#include <csignal>
#include <new>
#include <sys/mman.h>
#include <sys/wait.h>
#include <truth.h>

using boost::interprocess::interprocess_mutex;

int main()
{
    void *memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto *lock = new (memory) interprocess_mutex;
    pid_t other = fork();
    if (other == 0) {
        lock->lock();
        raise(SIGKILL);
    }
    waitpid(other, nullptr, 0);
    LAB_ROLE("waiter");
    LAB_READY();
    lock->lock();
    return 0;
}
