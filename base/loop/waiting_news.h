#pragma once

#include "base/clock.h"
#include "base/loop/asio.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun {

/// When to tell the user what is waited for: nobody is told of a moment, and everybody of what takes longer, once a minute.
/// It has no clock, and says nothing itself.
class WaitingNews {
public:
    static constexpr std::chrono::seconds kFirst{2}, kThen{60};

    /// Something is waited for. \return whether that is to be told now
    bool look(Deadline now);
    /// It has come, or is not waited for any more. \return whether the user was told that it is waited for
    bool over();

private:
    std::optional<Deadline> next_;
    bool is_told_ = false;
};

/// Tells in the same moments, until it is cancelled.
asio::awaitable<void> tell_while_waiting(std::function<void()> tell);

/// " (until 18:45, --elastic-timeout)"; empty without a limit. With seconds where it is near, with the day where it is
/// far. \param left  until then; the time of day is this machine's
std::string until_text(std::optional<std::chrono::milliseconds> left, std::string_view flag);

}  // namespace dtrun
