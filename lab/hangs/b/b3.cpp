#include <future>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <cstdio>
struct Gate { std::mutex m; std::condition_variable c; bool open=false; void pass(){ std::unique_lock<std::mutex> l(m); c.wait(l,[&]{return open;}); } void let(){ {std::lock_guard<std::mutex> l(m); open=true;} c.notify_all(); } };
static Gate gate;
static int load(){ std::this_thread::sleep_for(std::chrono::milliseconds(50)); gate.pass(); return 4; }
int main(){ auto f=std::async(std::launch::async,load); std::thread t([]{ for(;;) std::this_thread::sleep_for(std::chrono::milliseconds(100)); }); pthread_setname_np(t.native_handle(),"pulse"); t.detach(); std::this_thread::sleep_for(std::chrono::milliseconds(100)); int n=f.get(); gate.let(); printf("%d\n",n); }
