#include "launcher/head/stop_deadlines.h"

#include <algorithm>

namespace dtrun::head {

void StopDeadlines::pause(std::uint64_t generation, std::chrono::milliseconds grace, Deadline now) {
    pausing_ = generation;
    by_ = now + grace + kLimit;
    first_ = std::min(first_, by_);
}

void StopDeadlines::paused(HostId host, std::uint64_t generation) {
    hosts_[host].paused = generation;
}

void StopDeadlines::stop(std::chrono::milliseconds grace, Deadline now) {
    pausing_ = 0;
    by_ = now + grace + kLimit;
    first_ = std::min(first_, by_);
}

void StopDeadlines::release(HostId host, std::chrono::milliseconds grace, Deadline now) {
    hosts_[host].released_by = now + grace + kLimit;
    first_ = std::min(first_, hosts_[host].released_by);
}

Deadline StopDeadlines::deadline_of(const Host& host) const {
    const bool answered = pausing_ != 0 && host.paused == pausing_;
    return std::min(answered ? Deadline::max() : by_, host.released_by);
}

std::vector<HostId> StopDeadlines::late(Deadline now) const {
    std::vector<HostId> late;
    if (now < first_) return late;
    PerHost<Deadline> patience;
    for (const Host& host : hosts_) {
        const Deadline deadline = deadline_of(host);
        patience.push_back(
            host.output.patience(deadline == Deadline::max() ? by_ : deadline, kLimit));
    }
    // A relay is done only after the hosts behind it.
    for (const HostId host : hosts_.hosts())
        if (const auto relay = tree_.parent(host))
            patience[*relay] = std::max(patience[*relay], patience[host]);
    for (const HostId host : hosts_.hosts())
        if (deadline_of(hosts_[host]) != Deadline::max() && now >= patience[host])
            late.push_back(host);
    return late;
}

}  // namespace dtrun::head
