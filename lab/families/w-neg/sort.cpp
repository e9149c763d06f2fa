// Sorts texts, with a comparison of its own, beside a thread that waits for work.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>
std::mutex m; std::condition_variable c; bool work;
struct Less { virtual bool operator()(const std::string &a, const std::string &b) const { return a.substr(1) < b.substr(1); } virtual ~Less() = default; };
int main() { std::thread idle([] { std::unique_lock l(m); c.wait(l, [] { return work; }); });
  std::mt19937 r(7); std::vector<std::string> texts(200000); Less *less = new Less;
  for (;;) { for (auto &t : texts) t = std::to_string(r()); std::sort(texts.begin(), texts.end(), [&](auto &a, auto &b) { return (*less)(a, b); }); } }
