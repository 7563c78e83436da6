#include "launcher/head/start_teller.h"

#include <fmt/format.h>
#include <string>
#include <utility>

namespace dtrun::head {

void StartTeller::open(Fd words, Fd errors) {
    const std::lock_guard lock(mutex_);
    words_ = std::move(words);
    errors_ = std::move(errors);
}

bool StartTeller::is_awaited() const {
    const std::lock_guard lock(mutex_);
    return static_cast<bool>(words_);
}

/// Who waits may have gone: the job goes on.
void StartTeller::write(const Fd& to, std::string_view text) {
    if (!to) return;
    if (const auto done = write_all(to.get(), text); !done) return;
}

void StartTeller::has_id(std::string_view job) {
    const std::lock_guard lock(mutex_);
    write(words_, fmt::format("{}\n", job));
}

void StartTeller::say(std::string_view whole_lines) {
    const std::lock_guard lock(mutex_);
    write(errors_, whole_lines);
}

void StartTeller::started() {
    const std::lock_guard lock(mutex_);
    write(words_, fmt::format("{}\n", kStarted));
    words_.reset();
    errors_.reset();
}

}  // namespace dtrun::head
