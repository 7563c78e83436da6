#include "launcher/inspect/member_news.h"

#include "base/text_layout.h"

#include <chrono>

namespace dtrun::inspect {

using std::chrono::milliseconds;

std::string missing_text(std::uint32_t ready, std::uint32_t needed) {
    const std::uint32_t more = needed > ready ? needed - ready : 0;
    return fmt::format("{} of {} rank{} {} there; waiting for {} more", ready, needed,
                       needed == 1 ? "" : "s", ready == 1 ? "is" : "are", more);
}

void MemberNews::daemon_away(Error why, Deadline until) {
    away_.emplace(std::move(why), until);
    gathering_.reset();
}

void MemberNews::daemon_there() {
    away_.reset();
    was_there_ = true;
}

std::optional<std::string> MemberNews::look(Deadline now) {
    const std::string text = waiting_text(now);
    if (!text.empty()) return news_.look(now) ? std::optional(text) : std::nullopt;
    if (!news_.over() || ranks_ == 0) return std::nullopt;
    return fmt::format("job {}: all are there", target_.job);
}

/// Empty: nobody is waited for, as far as is known.
std::string MemberNews::waiting_text(Deadline now) const {
    if (away_) return away_text(now);
    if (ranks_ > 0 && live_ == 0)
        return fmt::format("job {}: the ranks of this host have ended; waiting for the others",
                           target_.job);
    if (!gathering_ || ranks_ > 0) return "";
    if (gathering_->needed == 0)
        return fmt::format("job {} runs with {}, and this host is a spare", target_.job,
                           plural(gathering_->ready, "rank"));
    std::optional<milliseconds> left;
    if (gathering_->left_ms > 0) left = milliseconds(gathering_->left_ms);
    return fmt::format(
        "job {}: {}: the same command on another node{}{}", target_.job,
        missing_text(gathering_->ready, gathering_->needed), meeting_text(),
        until_text(left, gathering_->is_first ? "--start-timeout" : "--elastic-timeout"));
}

std::string MemberNews::away_text(Deadline now) const {
    const auto& [why, until] = *away_;
    const auto left = std::chrono::duration_cast<milliseconds>(until - now);
    const std::string_view flag = was_there_ ? "--server-timeout"
                                  : by_hand_ ? "--start-timeout"
                                             : "--connect-timeout";
    return fmt::format("waiting for {}: {}{}", target_.name, why.message, until_text(left, flag));
}

/// Where the other nodes find this one, which serves the job, and what they need to be let in.
std::string MemberNews::meeting_text() const {
    if (!target_.serve) return "";
    return fmt::format(", which finds this one at {}:{} and needs the secret of {}", target_.host,
                       target_.port, target_.secret_source);
}

}  // namespace dtrun::inspect
