// What `dtrun status` and the page of a daemon say of a job, and what `dtrun store drop` is answered.

#include "base/milliseconds.h"
#include "base/text_layout.h"
#include "rendezvous/daemon/served_job.h"
#include "rendezvous/wire/msgpack.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace dtrun {
namespace {

const char* phase_name(const Membership& membership) {
    using Phase = Membership::Phase;
    switch (membership.phase()) {
        case Phase::waiting:
            return "gathering";
        case Phase::running:
            return membership.is_finishing() ? "finishing" : "running";
        case Phase::pausing:
        case Phase::collecting:
        case Phase::committing:
            return "changing";
        case Phase::ended:
            return "ended";
    }
    return "?";
}

}  // namespace

boost::json::object ServedJob::describe(Deadline now) const {
    boost::json::object job;
    job["name"] = options_.name;
    job["phase"] = membership_ ? phase_name(*membership_) : "store";
    if (!options_.damage.empty()) job["phase"] = "damaged", job["damage"] = options_.damage;
    job["generation"] = hub_.generation();
    job["keys"] = hub_.store().size();
    job["store_bytes"] = hub_.store().bytes();
    job["answer_bytes"] = hub_.answer_bytes();
    job["history_bytes"] = hub_.store().history_bytes();
    job["waiting"] = hub_.store().waiting();
    job["connections"] = peers_.size();
    job["age_s"] = std::chrono::duration_cast<std::chrono::seconds>(now - known_since_).count();
    if (peers_.empty())
        job["unused_s"] =
            std::chrono::duration_cast<std::chrono::seconds>(now - unused_since_).count();
    const Heartbeat progress = hub_.progress();
    if (progress.reporting > 0) {
        job["slowest_rank"] = std::to_underlying(progress.slowest.rank);
        job["slowest_step"] = progress.slowest.step;
        job["fastest_step"] = progress.fastest_step;
    }
    if (!membership_) return job;
    job["ranks"] = membership_->world().size();
    job["ranks_min"] = membership_->policy().ranks_min;
    job["ranks_max"] = membership_->policy().sizes.max;
    job["slots_ready"] = membership_->slots_ready();
    job["slots_needed"] = membership_->slots_needed();
    PerHost<boost::json::array> ranks(hosts_.size());
    for (const RankAssignment& assigned : membership_->world())
        ranks[assigned.host].push_back(std::to_underlying(assigned.rank.rank));
    boost::json::array members;
    for (const auto& [id, state] : members_)
        members.push_back(describe(state, std::move(ranks[state.host])));
    job["members"] = std::move(members);
    return job;
}

std::optional<Gathering> ServedJob::gathering(Deadline now) const {
    if (!membership_ || ended_) return std::nullopt;
    Gathering news;
    news.is_first = generation() == 0;
    const auto shortage = membership_->shortage();
    if (shortage) {
        news.ready = shortage->ready;
        news.needed = shortage->needed;
        if (shortage->until) news.left_ms = std::max(1u, to_ms(*shortage->until - now));
        return news;
    }
    const bool runs = membership_->phase() == Membership::Phase::running;
    if (!runs || !membership_->policy().elastic) return std::nullopt;
    news.ready = static_cast<std::uint32_t>(membership_->world().size());
    return news;
}

boost::json::object ServedJob::describe(const MemberState& state, boost::json::array ranks) const {
    boost::json::object member;
    member["host"] = hosts_[state.host].name;
    member["slots"] = hosts_[state.host].slots;
    member["ranks"] = ranks.size();
    if (!ranks.empty()) member["first_rank"] = ranks.front();
    member["rank_list"] = std::move(ranks);
    member["connected"] = state.peer.has_value();
    return member;
}

/// Answers who wants the job dropped; the daemon does it, when the answer is under way.
StoreReply ServedJob::drop() {
    const bool has_members = !members_.empty();
    StoreReply reply{has_members ? Status::refused : Status::ok, {}};
    PackWriter out(reply.results);
    out.array(1);
    if (has_members) {
        const std::string members = plural(members_.size(), "member");
        out.str(ended_ ? fmt::format("the job has ended, but {} of it must leave first", members)
                       : fmt::format("the job has {}; end them first", members));
        return reply;
    }
    is_dropped_ = true;
    out.boolean(membership_ || hub_.store().size() > 0 || !options_.damage.empty());
    return reply;
}

}  // namespace dtrun
