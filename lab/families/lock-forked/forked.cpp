// SPDX-License-Identifier: MIT
#include <chrono>
#include <iostream>
#include <mutex>
#include <thread>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
namespace log_
{
static std::mutex m;
static void write(const std::string &s)
{
    std::lock_guard<std::mutex> l(m);
    std::this_thread::sleep_for(std::chrono::milliseconds(s.size()));
}
} // namespace log_
static void chatter()
{
    for (;;)
        log_::write(std::string(40, 'x'));
}
int main()
{
    std::thread t(chatter);
    pthread_setname_np(t.native_handle(), "chatter");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    pid_t p = fork();
    if (!p) {
        log_::write("child");
        _exit(0);
    }
    int s;
    waitpid(p, &s, 0);
    std::cout << "done\n";
    _exit(0);
}
