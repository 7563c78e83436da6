#include "rendezvous/daemon/served_job.h"

#include "base/log.h"
#include "base/milliseconds.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "rendezvous/job/rank_end.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/fields_codec.h"
#include "rendezvous/wire/job_key.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/rank_messages.h"

#include <algorithm>
#include <csignal>

namespace dtrun {
namespace {

constexpr std::uint32_t kSlotsMax = 65'536;  // most slots of one member
constexpr std::uint32_t kGraceMs = 5'000;
constexpr std::size_t kAddressesMax = 1'024;  // most addresses of one member
constexpr std::size_t kSizesMax = 65'536;     // most numbers of ranks that a member allows
/// Members without a wanted place come after those with one.
constexpr std::uint64_t kUnplaced = 1ull << 32;
constexpr std::size_t kTextBytesMax = 4'096;  // limit of names and reasons, sent to other members
/// Most frames that are kept for a member that does not say that it has heard them: those of some hundred
/// generations. Each of them can be as long as the list of all hosts.
constexpr std::size_t kUnheardMax = 1'000;
/// Added to a client's return limit, since the daemon may notice a connection's end before the
/// client.
constexpr std::chrono::seconds kReturnMargin{10};

/// A time that can be added to any other: who sends it may be anybody with the secret.
std::chrono::milliseconds bounded(std::chrono::milliseconds span) {
    constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 365);
    return std::clamp(span, std::chrono::milliseconds(0), kMost);
}

/// What the first member of a job asks for.
JobPolicy policy_of(const Enter& enter) {
    JobPolicy policy = enter.policy;
    if (policy.ranks_min == 0) policy.ranks_min = enter.slots;
    policy.sizes.max = std::max(policy.ranks_min, policy.sizes.max);
    policy.ranks_start = std::max(policy.ranks_min, policy.ranks_start);
    std::ranges::sort(policy.sizes.allowed);
    policy.elastic = policy.sizes.max > policy.ranks_min;
    policy.hosts_may_come = policy.hosts_enter = true;
    for (auto* const span :
         {&policy.timeout, &policy.last_call, &policy.warn_time, &policy.cooldown_min,
          &policy.cooldown_max, &policy.refill_wait, &policy.rejoin_timeout})
        *span = bounded(*span);
    if (policy.start_timeout) policy.start_timeout = bounded(*policy.start_timeout);
    return policy;
}

/// Larger than every revision given before: also those of an earlier job of this name, whose clients may go on with
/// this one. The disk knows; without one, or with one that was restored from a backup, microseconds since 1970 do, as
/// a store changes less often, if nobody has set the clock back.
std::uint64_t first_revision(StateDb* db) {
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(since_1970());
    const auto by_clock = static_cast<std::uint64_t>(now.count());
    if (db == nullptr) return by_clock;
    const std::uint64_t first = std::max(by_clock, db->reserved());
    db->reserve(first);
    return first;
}

}  // namespace

ServedJob::ServedJob(JobId id, Options options, Outbox& outbox, StateDb* db, Deadline now)
    : id_(id),
      options_(std::move(options)),
      outbox_(outbox),
      db_(db),
      journal_(db != nullptr ? db->journal(id) : nullptr),
      hub_(outbox, hub_options(), journal_.get()),
      known_since_(now),
      unused_since_(now) {}

HubOptions ServedJob::hub_options() {
    const auto dropped = [this] { return drop(); };
    return {
        true,   {}, first_revision(db_), options_.return_limit, options_.status, options_.refusal,
        dropped};
}

// ---- Members come and go --------------------------------------------------------------------------

Result<void> ServedJob::enter(PeerId peer, const Enter& enter, std::string remote,
                              std::string local, Deadline now) {
    if (enter.member == MemberId{} || enter.slots > kSlotsMax ||
        enter.name.size() > kTextBytesMax || enter.addresses.size() > kAddressesMax ||
        enter.policy.sizes.allowed.size() > kSizesMax)
        return fail(Errc::invalid_input, "malformed enter");
    if (enter.job_name.size() > kJobNameBytesMax)
        return fail(Errc::invalid_input, "the job's name has {} bytes, more than {}",
                    enter.job_name.size(), kJobNameBytesMax);
    if (options_.name.empty()) options_.name = enter.job_name;  // one whose name is damaged, too
    if (enter.slots > 0) {
        auto done = enter_member(peer, enter, std::move(remote), std::move(local), now);
        if (!done) return done;
    } else {
        peers_[peer] = Peer{};
        hub_.add_peer(peer, PeerKind::subtree, kNoRank);
        hub_.set_group_client(peer, std::to_underlying(enter.member));
        unsaved_ = true;  // that it is used
    }
    is_forgotten_ = false;  // it came before the job was dropped
    const std::uint32_t return_ms = std::min(enter.return_ms, Enter::kReturnMsMax);
    hub_.set_return_limit(peer, std::chrono::milliseconds(return_ms) + kReturnMargin);
    carry_out();
    return {};
}

Result<void> ServedJob::enter_member(PeerId peer, const Enter& enter, std::string remote,
                                     std::string local, Deadline now) {
    const auto known = members_.find(enter.member);
    if (known == members_.end()) {
        if (auto may = may_enter(enter); !may) return may;
        add_member(enter, now, std::move(remote), std::move(local));
    } else {
        if (!known->second.sent.heard(enter.heard))
            return fail(
                Errc::denied,
                "the daemon's state is older than what this host was told: it is a copy, or "
                "was restored from a backup");
        log::info("job {}: {} is back", escaped(options_.name), escaped(enter.name));
        if (const auto old = known->second.peer) {  // its connection is dead
            hub_.remove_peer(*old, now);
            peers_.erase(*old);
        }
    }
    MemberState& state = members_.at(enter.member);
    state.peer = peer;
    state.away_until.reset();
    peers_[peer] = Peer{enter.member};
    hub_.add_peer(peer, PeerKind::subtree, kNoRank);
    send_now(peer, encode(Heard{state.heard.last()}));
    for (const Bytes& frame : state.sent.unheard()) send_now(peer, frame);
    unsaved_ = true;
    return {};
}

/// Whether a host that was not here yet may take part.
Result<void> ServedJob::may_enter(const Enter& enter) const {
    if (!options_.damage.empty()) return std::unexpected(damaged());
    if (ended_) return fail(Errc::denied, "job {} has ended", escaped(options_.name));
    if (enter.again) return fail(Errc::denied, "this host was taken for lost meanwhile");
    if (!membership_) return {};
    const JobPolicy& policy = membership_->policy();
    const JobPolicy asked = policy_of(enter);
    if (enter.policy.ranks_min != 0 &&
        (asked.ranks_min != policy.ranks_min || asked.sizes.max != policy.sizes.max))
        return fail(Errc::denied,
                    "job {} has {} to {} ranks (--min-np, --max-np of its first member)",
                    escaped(options_.name), policy.ranks_min, policy.sizes.max);
    const bool is_taken = std::ranges::any_of(
        members_, [&enter](const auto& member) { return member.second.order == enter.node_rank; });
    if (is_taken && membership_->generation() == 0)
        return fail(Errc::denied, "another node is --node-rank {} already", enter.node_rank);
    return {};
}

void ServedJob::add_member(const Enter& enter, Deadline now, std::string remote,
                           std::string local) {
    log::info("job {}: {} enters with {}", escaped(options_.name), escaped(enter.name),
              plural(enter.slots, "slot"));
    if (!membership_) membership_.emplace(policy_of(enter));
    MemberState& state = members_[enter.member];
    state.host = free_host();
    owners_[state.host] = enter.member;
    state.order = enter.node_rank != Enter::kAny ? enter.node_rank : kUnplaced;
    hosts_[state.host] = {enter.name,       enter.slots,     std::move(remote),
                          std::move(local), enter.free_port, enter.addresses};
    membership_->host_listed(state.host, enter.slots, now, state.order);
    membership_->host_ready(state.host, now);
}

/// A number for another host: that of one that has gone, if there is one.
HostId ServedJob::free_host() {
    for (const HostId host : hosts_.hosts())
        if (hosts_[host].slots == 0) return host;
    hosts_.emplace_back();
    owners_.emplace_back();
    return HostId{static_cast<std::uint32_t>(hosts_.size() - 1)};
}

/// A member is no part of the job any more.
void ServedJob::remove(MemberId id, const std::string& why, Deadline now) {
    const HostId host = members_.at(id).host;
    const std::string cause = fmt::format("{}: {}", hosts_[host].name, why);
    const bool had_ranks = membership_->has_ranks(host);
    if (had_ranks) hub_.fail_fences(cause);
    if (const auto peer = members_.at(id).peer) peers_[*peer].member.reset();
    members_.erase(id);
    membership_->host_lost(host, cause, now);
    membership_->host_delisted(host, now);
    hosts_[host] = {};
    owners_[host] = {};
    carry_out();
    if (members_.empty() && generation() > 0 && !ended_) finish(cause, {});
}

// ---- What members say -------------------------------------------------------------------------------

Result<void> ServedJob::frame(PeerId id, const FrameView& frame, Deadline now) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return fail(Errc::invalid_input, "another connection took its place");
    if (auto may = may_say(frame); !may) return may;
    if (is_exchanged(frame.type)) {
        const auto done = hub_.from_peer(id, frame, now);
        if (!notice_.is_due(now)) return done;
        if (const auto notice = notice_.look(hub_.progress(), now)) send_to_all(*notice);
        return done;
    }
    const std::optional<MemberId> member = peer->second.member;
    if (!member)
        return fail(Errc::invalid_input, "unexpected frame of type {}",
                    static_cast<int>(frame.type));
    MemberState& state = members_.at(*member);
    unsaved_ = true;
    if (frame.type == FrameType::heard) {
        const auto heard = decode<Heard>(frame.payload);
        return heard ? state.sent.heard(heard->number) : std::unexpected(heard.error());
    }
    if (frame.type != FrameType::numbered)
        return fail(Errc::invalid_input, "unexpected frame of type {}",
                    static_cast<int>(frame.type));
    const auto done = state.heard.take(
        frame.payload, [&](const FrameView& inner) { return from_member(*member, inner, now); });
    if (!done || !members_.contains(*member)) return done;
    send_now(id, encode(Heard{state.heard.last()}));
    carry_out();
    return {};
}

Result<void> ServedJob::from_member(MemberId id, const FrameView& frame, Deadline now) {
    const HostId host = members_.at(id).host;
    switch (frame.type) {
        case FrameType::exited:
            return rank_exited(host, frame.payload, now);
        case FrameType::rejoin_status: {
            const auto news = decode<RejoinStatus>(frame.payload);
            if (!news) return std::unexpected(news.error());
            if (!is_below(news->place, hosts_[host].slots)) return {};
            if (news->state == RejoinState::wants_rank)
                hub_.fail_fences(hosts_[host].name + " asks for a place in the next generation");
            membership_->process_says(host, news->place, news->state, now);
            return {};
        }
        case FrameType::paused: {
            const auto paused = decode<Paused>(frame.payload);
            if (!paused) return std::unexpected(paused.error());
            // Who waits for it at a fence would wait for ever, and end no ranks.
            hub_.fail_fences(fmt::format("{} has gone on to generation {}", hosts_[host].name,
                                         paused->generation));
            membership_->host_paused(host, paused->generation, now);
            return {};
        }
        case FrameType::ready_to_commit: {
            const auto ready_to_commit = decode<ReadyToCommit>(frame.payload);
            if (!ready_to_commit) return std::unexpected(ready_to_commit.error());
            membership_->host_ready_to_commit(host, ready_to_commit->number, now);
            return {};
        }
        case FrameType::leave: {
            const auto left = decode<Leave>(frame.payload);
            if (!left) return std::unexpected(left.error());
            if (left->finished) {
                hub_.fail_fences(hosts_[host].name + " has finished");
                membership_->host_finished(host, now);
            }
            remove(id, left->why.substr(0, kTextBytesMax), now);
            return fail(Errc::closed, "left");
        }
        default:
            return fail(Errc::invalid_input, "unexpected numbered frame of type {}",
                        static_cast<int>(frame.type));
    }
}

Result<void> ServedJob::rank_exited(HostId host, std::string_view payload, Deadline now) {
    const auto exited = decode<Exited>(payload);
    if (!exited) return std::unexpected(exited.error());
    if (!is_below(exited->place, hosts_[host].slots)) return {};
    const std::string& name = hosts_[host].name;
    const std::string who = fmt::format("{}: {}", name, end_text(*exited));
    using Meaning = Membership::Meaning;
    const Meaning meaning =
        membership_->rank_ended(host, exited->place, rank_end(*exited, who), now);
    if (meaning == Meaning::lost || meaning == Meaning::saved) hub_.fail_fences(who);
    if (meaning == Meaning::well) hub_.fail_fences(name + " has finished");
    return {};
}

void ServedJob::closed(PeerId id, Deadline now, bool is_lost) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return;
    const std::optional<MemberId> member = peer->second.member;
    hub_.remove_peer(id, now, is_lost);
    peers_.erase(peer);
    unused_since_ = now;
    unsaved_ = true;
    if (!member) return;
    members_.at(*member).peer.reset();
    members_.at(*member).away_until = now + options_.return_limit;
}

void ServedJob::silent(PeerId id, const std::string& why, Deadline now) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return;
    const std::optional<MemberId> member = peer->second.member;
    closed(id, now, true);
    if (member) remove(*member, why, now);
}

// ---- Time ---------------------------------------------------------------------------------------------

void ServedJob::tick(Deadline now) {
    hub_.expire(now);
    if (unused_until() <= now) {
        log::info("job {}: forgotten, as nobody was connected to it for {} s (--keep-unused)",
                  escaped(options_.name),
                  std::chrono::duration_cast<std::chrono::seconds>(*options_.keep_unused).count());
        is_forgotten_ = true;
    }
    std::vector<MemberId> gone, deaf;
    for (const auto& [id, state] : members_) {
        if (state.away_until && *state.away_until <= now) gone.push_back(id);
        if (state.sent.size() > kUnheardMax) deaf.push_back(id);
    }
    for (const MemberId id : gone) remove(id, "its connection broke and it did not come back", now);
    for (const MemberId id : deaf) {
        const auto member = members_.find(id);
        if (member == members_.end()) continue;
        const std::string why = "it does not hear what it is told";
        if (const auto peer = member->second.peer)
            send_now(*peer, encode(Stop{SIGTERM, kGraceMs, why}));
        remove(id, why, now);
    }
    if (!membership_ || membership_->next_deadline() > now) return;
    membership_->tick(now);
    carry_out();
}

void ServedJob::stood_still(Deadline from, Deadline until) {
    hub_.stood_still(from, until);
    if (unused_since_ < until) unused_since_ += until - std::max(from, unused_since_);
}

Deadline ServedJob::next_deadline() const {
    Deadline next = std::min(hub_.next_deadline(), unused_until());
    for (const auto& [id, state] : members_) {
        if (state.away_until) next = std::min(next, *state.away_until);
        if (state.sent.size() > kUnheardMax) return Deadline::min();
    }
    return membership_ ? std::min(next, membership_->next_deadline()) : next;
}

/// When a job is forgotten that is only a store, and that nobody is connected to. One with members
/// has their time limits.
Deadline ServedJob::unused_until() const {
    // Nobody can drop one whose name is damaged, too, unless somebody knows it.
    const bool is_to_be_dropped = !options_.damage.empty() && !options_.name.empty();
    if (!options_.keep_unused || !peers_.empty() || membership_ || is_forgotten_ ||
        is_to_be_dropped)
        return Deadline::max();
    return unused_since_ + *options_.keep_unused;
}

// ---- What members are told ------------------------------------------------------------------------

/// Carries out what the state machine has decided.
void ServedJob::carry_out() {
    if (!membership_) return;
    unsaved_ = true;
    const Membership::Orders orders = membership_->take_orders();
    if (ended_) return;
    const std::uint64_t next = generation() + 1;
    if (orders.pause || orders.reset_connections) notice_.forget();
    if (orders.pause) {
        log::info("job {}: generation {} is coming: {}", escaped(options_.name),
                  orders.pause->generation, escaped(orders.pause->why, kTextBytesMax));
        send_to_all(Pause{orders.pause->generation, SIGTERM, 0, orders.pause->why});
    }
    if (orders.reset_connections) send_to_all(ResetConnections{generation(), {}, true});
    std::map<HostId, EndRanks> ends;
    for (const auto& [host, place] : orders.kill) ends[host].places.push_back(place);
    for (const auto& [host, order] : ends) send(host, order);
    if (orders.prepare)
        for (const auto& [host, order] :
             prepare_world(assign_world(next, *orders.prepare, hosts_, false)))
            send(host, order);
    if (orders.notify || orders.warn) tell_change(orders.warn);
    if (orders.query_commit) send_to_all(QueryCommit{*orders.query_commit});
    if (orders.ended) return finish(*orders.ended);
    if (orders.begin) begin(*orders.begin);
}

/// Tells ranks that hosts change.
void ServedJob::tell_change(const std::optional<Membership::Warning>& warning) {
    Notify notice;
    notice.generation = generation() + 1;
    notice.reason = membership_->is_draining() ? ChangeReason::left : ChangeReason::joined;
    if (warning) {
        notice.deadline_ms = to_ms(warning->time);
        notice.signal = membership_->policy().warn_signal;
    }
    send_to_all(notice_.make(notice));
}

void ServedJob::begin(const std::vector<RankAssignment>& world) {
    log::info("job {}: generation {} begins with {}", escaped(options_.name), generation(),
              plural(world.size(), "rank"));
    notice_.begin();
    hub_.begin(generation(), static_cast<std::uint32_t>(world.size()));
    for (const auto& [host, assign] : assign_world(generation(), world, hosts_, false))
        send(host, assign);
}

void ServedJob::finish(const Membership::End& end) {
    finish(text_of(end), end.host ? owners_[*end.host] : MemberId{});
}

/// \param why  empty: it has succeeded
void ServedJob::finish(const std::string& why, MemberId because_of) {
    ended_ = why;
    log::info("job {}: {}", escaped(options_.name),
              why.empty() ? "finished" : escaped(why, kTextBytesMax));
    send_to_all(Stop{SIGTERM, kGraceMs, why, false, because_of});
}

std::string ServedJob::text_of(const Membership::End& end) const {
    using Cause = Membership::End::Cause;
    const JobPolicy& policy = membership_->policy();
    switch (end.cause) {
        case Cause::finished:
            return "";
        case Cause::too_few:
            if (generation() == 0)
                return fmt::format("{} of {} ranks came within {} (--start-timeout)",
                                   membership_->slots_ready(), membership_->slots_needed(),
                                   in_seconds(policy.start_timeout.value_or(policy.timeout)));
            return fmt::format("{} for {} (--elastic-timeout)", end.why,
                               in_seconds(policy.timeout));
        case Cause::resets:
            return end.why + " (--reset-limit)";
        case Cause::failures:
            return fmt::format("{}, and --failure-limit {} allows no more", end.why,
                               *policy.failures_max);
        case Cause::cannot_start:
        case Cause::host_lost:
        case Cause::rank_failed:
        case Cause::too_many_failures:
            return end.why;
    }
    return end.why;
}

void ServedJob::end(const std::string& why) {
    for (const auto& [id, state] : members_)
        if (state.peer) send_now(*state.peer, encode(Stop{SIGTERM, kGraceMs, why}));
}

template <class Message>
void ServedJob::send(HostId host, const Message& message) {
    const auto member = members_.find(owners_[host]);
    if (member != members_.end()) send(member->second, encode(message));
}

template <class Message>
void ServedJob::send_to_all(const Message& message) {
    const Bytes frame = encode(message);
    for (auto& [id, state] : members_) send(state, frame);
}

/// Arrives once, over whatever connections the member has.
void ServedJob::send(MemberState& state, const Bytes& frame) {
    const Bytes numbered = state.sent.add(frame);
    if (state.peer) send_now(*state.peer, numbered);
}

void ServedJob::send_now(PeerId peer, const Bytes& frame) {
    outbox_.to_peer(peer, static_cast<FrameType>(frame[4]), payload_of(frame));
}

// ---- The job as a whole ---------------------------------------------------------------------------

bool ServedJob::idle() const {
    if (!peers_.empty()) return false;
    if (is_forgotten_) return true;
    if (!options_.damage.empty()) return false;
    if (membership_) return members_.empty();
    // Kept answers are needed: a client whose connection broke may repeat its request.
    return hub_.store().size() == 0 && hub_.answer_bytes() == 0;
}

bool ServedJob::is_over() const {
    return is_dropped_ || (membership_ && members_.empty());
}

void ServedJob::retire() {
    hub_.end_waits();
}

}  // namespace dtrun
