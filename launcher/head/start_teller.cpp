#include "launcher/head/start_teller.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::head {

void StartTeller::open(Caller caller) {
    const std::lock_guard lock(mutex_);
    caller_ = std::move(caller);
    errors_.emplace(caller_.errors.get());
}

bool StartTeller::is_awaited() const {
    const std::lock_guard lock(mutex_);
    return static_cast<bool>(caller_.words);
}

void StartTeller::files_opened() {
    const std::lock_guard lock(mutex_);
    caller_.others.clear();
}

/// Who waits may have gone: the job goes on.
void StartTeller::tell(std::string_view word) {
    if (!caller_.words) return;
    if (const auto done = write_all(caller_.words.get(), fmt::format("{}\n", word)); !done) return;
}

void StartTeller::has_id(std::string_view job) {
    const std::lock_guard lock(mutex_);
    tell(job);
}

void StartTeller::say(std::string_view whole_lines) {
    const std::lock_guard lock(mutex_);
    if (errors_) errors_->write(whole_lines, "dtrun");
}

void StartTeller::started() {
    const std::lock_guard lock(mutex_);
    tell(kStarted);
    errors_.reset();
    caller_ = {};
}

}  // namespace dtrun::head
