#include "base/loop/waiting_news.h"

#include "base/strings.h"
#include "base/text_layout.h"

#include <fmt/format.h>
#include <tuple>
#include <utility>

namespace dtrun {

bool WaitingNews::look(Deadline now) {
    if (!next_) next_ = now + kFirst;
    if (now < *next_) return false;
    next_ = now + kThen;
    is_told_ = true;
    return true;
}

bool WaitingNews::over() {
    next_.reset();
    return std::exchange(is_told_, false);
}

asio::awaitable<void> tell_while_waiting(std::function<void()> tell) {
    const auto executor = co_await asio::this_coro::executor;
    Timer timer(executor, WaitingNews::kFirst);
    boost::system::error_code stopped;
    for (;;) {
        std::tie(stopped) = co_await timer.async_wait(use_tuple);
        if (stopped) co_return;
        tell();
        timer.expires_after(WaitingNews::kThen);
    }
}

std::string until_text(std::optional<std::chrono::milliseconds> left, std::string_view flag) {
    if (!left) return "";
    using namespace std::chrono_literals;
    const auto then = std::chrono::system_clock::now() + *left;
    const char* const form = *left < 10min ? "%H:%M:%S" : *left < 20h ? "%H:%M" : "%e %b %H:%M";
    const std::string shown = local_time_text(std::chrono::system_clock::to_time_t(then), form);
    return fmt::format(" (until {}, {})", trim(shown), flag);
}

}  // namespace dtrun
