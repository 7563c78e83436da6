#include "launcher/head/answer_watch.h"

#include <algorithm>

namespace dtrun::head {

void AnswerWatch::pause(std::uint64_t generation, std::chrono::milliseconds grace, Deadline now) {
    pausing_ = generation;
    by_ = now + grace + kLimit;
}

void AnswerWatch::paused(HostId host, std::uint64_t generation) {
    hosts_[host].paused = generation;
}

void AnswerWatch::stop(std::chrono::milliseconds grace, Deadline now) {
    pausing_ = 0;
    by_ = now + grace + kLimit;
}

std::vector<HostId> AnswerWatch::late(Deadline now) const {
    std::vector<HostId> late;
    if (!by_ || now < *by_) return late;
    PerHost<Deadline> patience;
    for (const Host& host : hosts_) patience.push_back(host.output.patience(*by_, kLimit));
    // A relay is done only after the hosts behind it.
    for (const HostId host : hosts_.hosts())
        if (const auto relay = tree_.parent(host))
            patience[*relay] = std::max(patience[*relay], patience[host]);
    for (const HostId host : hosts_.hosts()) {
        const bool answered = pausing_ != 0 && hosts_[host].paused == pausing_;
        if (!answered && now >= patience[host]) late.push_back(host);
    }
    return late;
}

}  // namespace dtrun::head
