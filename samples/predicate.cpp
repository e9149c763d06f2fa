// SPDX-License-Identifier: MIT
// A client asks connection.usable() until it is; the state lies in the object on the heap. In spin
// mode the connector counts its attempts wrongly, gives up early and leaves the state alone.
#include "announce.h"
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>

class Connection {
public:
    explicit Connection(std::string peer) : peer_(std::move(peer)) {}
    __attribute__((noinline)) bool usable() const
    {
        if (peer_.empty())
            return false;
        return state_.load(std::memory_order_acquire) == 5;
    }
    void connect(int attempts)
    {
        for (int attempt = 0; attempt < attempts; attempt++) {
            usleep(40000);
            attempts_made_++;
            if (attempts_made_ == 4) {
                state_.store(5, std::memory_order_release);
                return;
            }
        }
    }
    void announce() const { announce_flag(&state_, sizeof state_); }

private:
    std::string peer_;
    long attempts_made_ = 0;
    std::atomic<int> state_{1};
};

__attribute__((noinline)) static void wait_until_usable(const Connection &connection)
{
    while (!connection.usable())
        usleep(500);
}

int main(int argc, char **argv)
{
    bool hang = argc > 1 && std::strcmp(argv[1], "spin") == 0;
    auto connection = std::make_unique<Connection>("database.example:5432");
    connection->announce();
    std::thread connector([&] { connection->connect(hang ? 3 : 5); });
    wait_until_usable(*connection);
    connector.join();
    std::puts("connected");
}
