// SPDX-License-Identifier: MIT
// A player asks its present stage over and over, by a virtual call; another thread swaps the stage.
// In spin mode the loader finds its list empty and leaves the stage that says "wait".
#include "announce.h"
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <unistd.h>

struct Stage {
    virtual ~Stage() = default;
    virtual bool poll(long &frames) = 0;
};

struct Buffering : Stage {
    bool poll(long &) override
    {
        __builtin_ia32_pause();
        return false;
    }
};

struct Playing : Stage {
    bool poll(long &frames) override
    {
        frames += 24;
        return true;
    }
};

struct Player {
    char title[24] = "concert";
    std::atomic<Stage *> stage{nullptr};
};

__attribute__((noinline)) static long play(Player &player)
{
    long frames = 0;
    while (!player.stage.load(std::memory_order_acquire)->poll(frames)) {
    }
    return frames;
}

int main(int argc, char **argv)
{
    bool hang = argc > 1 && std::strcmp(argv[1], "spin") == 0;
    auto *player = new Player;
    auto *buffering = new Buffering, *waiting = buffering;
    auto *playing = new Playing;
    player->stage = waiting;
    announce_flag(&player->stage, sizeof player->stage);
    std::thread loader([&] {
        usleep(150000);
        int parts = hang ? 0 : 3;
        while (parts-- > 0)
            player->stage.store(playing, std::memory_order_release);
    });
    std::printf("%ld\n", play(*player));
    loader.join();
}
