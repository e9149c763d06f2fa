// SPDX-License-Identifier: MIT
// A loader thread fills an index and raises a std::atomic. In spin mode the last word is too long:
// the exception is caught at the thread's top and logged, and the flag stays down.
#include "announce.h"
#include <atomic>
#include <chrono>
#include <cstring>
#include <immintrin.h>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace catalog {
std::atomic<bool> index_built{false};
std::atomic<int> warnings{0};
}

class Index {
public:
    void add(const std::string &word)
    {
        if (word.size() > 40)
            throw std::length_error("word too long");
        counts_[word]++;
    }
    std::size_t size() const { return counts_.size(); }

private:
    std::map<std::string, int> counts_;
};

static void build(Index &index, const std::vector<std::string> &words)
{
    try {
        for (const auto &word : words) {
            if (&word == &words.back())
                announce_flag(&catalog::index_built, sizeof catalog::index_built);
            index.add(word);
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        catalog::index_built.store(true, std::memory_order_release);
    } catch (const std::exception &) {
        catalog::warnings.fetch_add(1);
    }
}

__attribute__((noinline)) static void wait_for_index()
{
    while (!catalog::index_built.load(std::memory_order_acquire))
        _mm_pause();
}

int main(int argc, char **argv)
{
    bool hang = argc > 1 && std::strcmp(argv[1], "spin") == 0;
    std::vector<std::string> words;
    for (int i = 0; i < 100; i++)
        words.push_back("word" + std::to_string(i % 37));
    words.push_back(std::string(hang ? 60 : 20, 'x'));
    Index index;
    std::thread loader(build, std::ref(index), std::cref(words));
    wait_for_index();
    loader.join();
    std::printf("%zu words\n", index.size());
}
