#include "worker/client/step/roster.h"

#include "base/strings.h"

#include <utility>
#include <vector>

namespace dtrun::embedded {

StepRoster::StepRoster(std::uint32_t ranks) : ranks_(ranks) {
    for (const Rank rank : all_ranks(ranks)) missing_.insert(rank);
}

std::optional<std::string> StepRoster::end_if_missing(std::chrono::milliseconds waited) {
    const std::lock_guard lock(mutex_);
    if (missing_.empty()) return std::nullopt;
    std::vector<std::string> names;
    for (const Rank rank : missing_) names.push_back(fmt::format("{}", rank));
    const bool one = names.size() == 1;
    std::string why = fmt::format(
        "{} {} of {} {} not come{} within {:.1f} s", one ? "rank" : "ranks", join_names(names),
        ranks_, one ? "has" : "have", problem_, static_cast<double>(waited.count()) / 1'000);
    if (!end_why_) end_why_ = "rank 0: " + why;
    return why;
}

void StepRoster::end(std::string why) {
    const std::lock_guard lock(mutex_);
    if (!end_why_) end_why_ = std::move(why);
}

void StepRoster::stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
}

Outcome<void> StepRoster::wait_for_others(const WaitContext& context) {
    std::unique_lock lock(mutex_);
    while (others_ > 0) {
        const Moment until = context.slice();
        if (until == Moment::max()) {
            others_gone_.wait(lock);
            continue;
        }
        others_gone_.wait_until(lock, until);
        lock.unlock();
        const bool give_up = context.give_up && context.give_up();
        lock.lock();
        if (give_up) return failure(DTRUN_CANCELLED, "interrupted");
        if (context.over()) return failure(DTRUN_TIMED_OUT, "timed out");
    }
    return {};
}

bool StepRoster::is_missing(Rank rank) const {
    const std::lock_guard lock(mutex_);
    return missing_.contains(rank);
}

bool StepRoster::come(Rank rank) {
    const std::lock_guard lock(mutex_);
    missing_.erase(rank);
    if (rank != Rank{0}) ++others_;
    return missing_.empty() && !end_why_;  // rank 0 may wait no longer
}

void StepRoster::go(Rank rank) {
    if (rank == Rank{0}) return;
    const std::lock_guard lock(mutex_);
    if (--others_ == 0) others_gone_.notify_all();
}

void StepRoster::all_go() {
    const std::lock_guard lock(mutex_);
    others_ = 0;
    others_gone_.notify_all();
}

void StepRoster::set_problem(std::string problem) {
    const std::lock_guard lock(mutex_);
    problem_ = std::move(problem);
}

std::optional<std::string> StepRoster::take_end() {
    const std::lock_guard lock(mutex_);
    return std::exchange(end_why_, std::nullopt);
}

bool StepRoster::is_stopped() const {
    const std::lock_guard lock(mutex_);
    return stopping_ && !end_why_;
}

}  // namespace dtrun::embedded
