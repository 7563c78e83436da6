#include "launcher/inspect/waiting_news.h"

#include <fmt/format.h>
#include <ctime>
#include <utility>

namespace dtrun::inspect {

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

std::string missing_text(std::uint32_t ready, std::uint32_t needed) {
    const std::uint32_t more = needed > ready ? needed - ready : 0;
    return fmt::format("{} of {} rank{} {} there; waiting for {} more", ready, needed,
                       needed == 1 ? "" : "s", ready == 1 ? "is" : "are", more);
}

std::string until_text(std::optional<std::chrono::milliseconds> left, std::string_view flag) {
    if (!left) return "";
    using namespace std::chrono_literals;
    const auto then = std::chrono::system_clock::now() + *left;
    const std::time_t seconds = std::chrono::system_clock::to_time_t(then);
    std::tm parts{};
    ::localtime_r(&seconds, &parts);
    const char* const form = *left < 10min ? "%H:%M:%S" : *left < 20h ? "%H:%M" : "%e %b %H:%M";
    char text[64];
    const std::size_t length = std::strftime(text, sizeof text, form, &parts);
    std::string_view shown(text, length);
    while (shown.starts_with(' ')) shown.remove_prefix(1);
    return fmt::format(" (until {}, {})", shown, flag);
}

}  // namespace dtrun::inspect
