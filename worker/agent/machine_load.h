#pragma once

#include "base/loop/deadline.h"

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

namespace dtrun::agent {

/// Whether this machine has so much to do that our own heartbeats may come late by seconds: they then
/// say so in advance, and a late one is taken for a lost host only after several timeouts.
///
/// High is a load of more than four runnable threads for each processor, as when ranks that outnumber
/// the processors start, or a sample that was itself late by a second. It counts for four seconds: the
/// number goes up and down from moment to moment.
class MachineLoad {
public:
    /// \return whether more threads want to run than the machine's processors can take
    using Source = std::function<bool()>;
    explicit MachineLoad(Source source) : source_(std::move(source)) {}

    /// To be called at every heartbeat, where somebody could take us for lost.
    void sample(Deadline now);
    bool is_high(Deadline now) const { return now < high_until_; }

private:
    Source source_;
    std::optional<Deadline> last_sample_;
    Deadline high_until_{};
};

/// The source of a real machine: Linux's number of runnable threads, in a file that stays open.
MachineLoad::Source runnable_threads_source(const char* path = "/proc/loadavg");

/// Threads of the machine that run or want to.
/// \param loadavg  the content of /proc/loadavg; 0 if it is none
long runnable_threads(std::string_view loadavg);

}  // namespace dtrun::agent
