// SPDX-License-Identifier: MIT
// A quote service with Boost.Asio: requests are handled on the one thread of an io_context.
// `quotes blocking`: a handler waits for the future of what it posted itself.
#include <boost/asio.hpp>
#include <chrono>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

namespace asio = boost::asio;

class Rates {
  public:
    explicit Rates(asio::io_context &context) : context_(context) {}

    std::future<double> rate(const std::string &currency)
    {
        auto task = std::make_shared<std::packaged_task<double()>>(
            [currency] { return currency == "EUR" ? 1.07 : 1.0; });
        auto found = task->get_future();
        asio::post(context_, [task] { (*task)(); });
        return found;
    }

  private:
    asio::io_context &context_;
};

class Quotes {
  public:
    Quotes(asio::io_context &context, Rates &rates) : context_(context), rates_(rates) {}

    void handle(double amount)
    {
        asio::post(context_, [this, amount] { answer(amount); });
    }

  private:
    void answer(double amount)
    {
        double value = amount * rates_.rate("EUR").get();
        std::cout << value << std::endl;
    }

    asio::io_context &context_;
    Rates &rates_;
};

int main(int count, char **arguments)
{
    bool blocks = count > 1 && std::string(arguments[1]) == "blocking";
    asio::io_context requests, background;
    auto keep_requests = asio::make_work_guard(requests);
    auto keep_background = asio::make_work_guard(background);
    Rates rates(blocks ? requests : background);
    Quotes quotes(requests, rates);
    std::thread server([&] { requests.run(); });
    std::thread updates([&] { background.run(); });
    asio::steady_timer heartbeat(background, std::chrono::hours(1));
    heartbeat.async_wait([](const boost::system::error_code &) {});
    quotes.handle(100);
    std::cout << "begins" << std::endl;
    server.join();
    updates.join();
}
