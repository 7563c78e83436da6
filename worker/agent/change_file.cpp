#include "worker/agent/change_file.h"

#include "base/fd.h"
#include "base/log.h"
#include "worker/ranks/agent_directories.h"

#include <fmt/format.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace dtrun::agent {

const char* name_of(ChangeReason reason) {
    switch (reason) {
        case ChangeReason::joined:
            return "joined";
        case ChangeReason::left:
            return "left";
        case ChangeReason::lost:
            return "lost";
        case ChangeReason::restarted:
            return "restarted";
        case ChangeReason::none:
            break;
    }
    return "none";
}

Result<void> ChangeFile::open(contracts::ContractFacts& facts) {
    if (prefix_.empty()) return {};
    auto made = ranks::make_directory(prefix_);
    if (!made) return fail(made.error().code, "DTRUN_CHANGE_FILE: {}", made.error().message);
    directory_ = std::move(*made);
    facts.change_file = path();
    return {};
}

ChangeFile::~ChangeFile() {
    if (!directory_.empty()) ranks::remove_directory(directory_);
}

Result<void> ChangeFile::go_on(const Assign&) {
    if (!directory_.empty()) ::unlink(path().c_str());
    return {};
}

/// Who reads finds the old file or the new one, and never half of one.
void ChangeFile::changing(const Change& change) {
    if (directory_.empty()) return;
    const std::string fresh = path() + ".new";
    const auto written =
        create_file(fresh, fmt::format("{} {} {}\n", change.next, name_of(change.reason),
                                       (change.deadline_ms + 999) / 1'000));
    if (!written) return log::warn("{}", written.error().message);
    if (::rename(fresh.c_str(), path().c_str()) != 0)
        log::warn("{}: {}", path(), std::strerror(errno));
}

}  // namespace dtrun::agent
