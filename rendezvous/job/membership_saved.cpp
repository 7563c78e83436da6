// A job's generations in a process that goes on with them: what a daemon keeps on its disk.

#include "rendezvous/job/membership.h"
#include "rendezvous/wire/fields_codec.h"

#include <algorithm>

namespace dtrun {

Bytes Membership::save_job() const {
    Bytes bytes;
    PackWriter out(bytes);
    pack(out, *this);
    return bytes;
}

Bytes Membership::save_host(HostId host) const {
    Bytes bytes;
    PackWriter out(bytes);
    pack(out, hosts_[host]);
    return bytes;
}

Result<void> Membership::restore(std::string_view job, const std::vector<std::string>& hosts,
                                 Deadline now, std::chrono::milliseconds newcomers_wait) {
    PackReader in(job);
    unpack(in, *this);
    bool is_read = in.at_end();
    for (const std::string& host : hosts) {
        PackReader host_in(host);
        unpack(host_in, hosts_.emplace_back());
        is_read = is_read && host_in.at_end();
    }
    if (!is_read || !is_whole()) return fail(Errc::invalid_input, "the job's record is damaged");
    go_on(now, newcomers_wait);
    return {};
}

/// Whether every rank of the world has one of a host's slots.
bool Membership::is_whole() const {
    return phase_ <= Phase::ended &&
           std::ranges::all_of(world_, [this](const RankAssignment& assigned) {
               return hosts_.has(assigned.host) &&
                      is_below(assigned.rank.place, hosts_[assigned.host].slots.size());
           });
}

void Membership::go_on(Deadline now, std::chrono::milliseconds newcomers_wait) {
    began_ = now;
    set_ranked();
    for (const HostId id : hosts_.hosts()) {
        hosts_[id].ranked_since = now;
        for (Slot& slot : hosts_[id].slots) slot.ranked_since = now;
    }
    const bool were_told = notified_;  // and will ask for their places
    abandon_prepared();
    notified_ = were_told;
    switch (phase_) {
        case Phase::waiting:
            waiting_since_ = now;
            return look(now);
        case Phase::running:
            if (warned_) warned_until_ = now + policy_.warn_time;
            call_more(now);
            if (call_until_) call_until_ = now + std::max(newcomers_wait, policy_.last_call);
            return;
        case Phase::pausing:
            return all_paused() ? settle(now) : void();
        case Phase::committing:
            phase_ = Phase::collecting;
            [[fallthrough]];
        case Phase::collecting:
            rejoin_until_ = now + policy_.rejoin_timeout;
            refill_until_ = now + policy_.refill_wait;
            return gather(now);
        case Phase::ended:
            return;
    }
}

}  // namespace dtrun
