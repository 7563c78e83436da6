#include "rendezvous/daemon/served_job.h"

#include "base/log.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "rendezvous/wire/exchange_messages.h"
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
constexpr std::size_t kTextBytesMax = 4'096;  // limit of names and reasons, sent to other members
/// Added to a client's return limit, since the daemon may notice a connection's end before the
/// client.
constexpr std::chrono::seconds kReturnMargin{10};

/// What the first member of a job asks for.
MembershipOptions options_of(const Enter& enter) {
    MembershipOptions options;
    options.ranks_min = enter.ranks_min != 0 ? enter.ranks_min : enter.slots;
    options.ranks_max = std::max(options.ranks_min, enter.ranks_max);
    options.join_timeout = std::chrono::milliseconds(enter.join_timeout_ms);
    options.last_call = std::chrono::milliseconds(enter.last_call_ms);
    options.allowed = enter.allowed;
    std::ranges::sort(options.allowed);
    options.elastic_timeout = std::chrono::milliseconds(enter.elastic_timeout_ms);
    if (enter.resets_max != Enter::kAny) options.resets_max = enter.resets_max;
    if (enter.restarts_max != Enter::kAny) options.restarts_max = enter.restarts_max;
    return options;
}

/// Microseconds since 1970 exceed every revision given before, as a store changes less often: also those
/// of an earlier job of this name, whose clients may go on with this one.
std::uint64_t first_revision() {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(since_1970()).count());
}

const char* phase_name(Membership::Phase phase) {
    switch (phase) {
        case Membership::Phase::gathering:
            return "gathering";
        case Membership::Phase::running:
            return "running";
        case Membership::Phase::proposing:
            return "changing";
        case Membership::Phase::finishing:
            return "finishing";
        case Membership::Phase::ended:
            return "ended";
    }
    return "?";
}

}  // namespace

ServedJob::ServedJob(JobId id, Options options, Outbox& outbox, StateDb* db, Deadline now)
    : id_(id),
      options_(std::move(options)),
      outbox_(outbox),
      db_(db),
      journal_(db != nullptr ? db->journal(id) : nullptr),
      hub_(outbox, hub_options(), journal_.get()),
      unused_since_(now) {}

ServedJob::ServedJob(const JobRecord& record, Options options, Outbox& outbox, StateDb& db,
                     Deadline now, std::chrono::milliseconds limit)
    : id_(record.id),
      options_(std::move(options)),
      outbox_(outbox),
      db_(&db),
      journal_(db.journal(record.id)),
      hub_(outbox, hub_options(), journal_.get()),
      unused_since_(now) {
    std::uint32_t world_size = 0;
    if (record.has_members) {
        membership_.emplace(record.options);
        membership_->restore(record.membership, now, limit);
        world_size = membership_->world_size();
        if (membership_->phase() == Membership::Phase::ended) ended_.emplace();
    }
    hub_.restore_generation(record.membership.generation, world_size);
    db.restore(record.id, hub_, now);
    unsaved_ = false;
    if (record.membership.phase == Membership::Phase::finishing)
        hub_.fail_fences("a rank has finished");
}

HubOptions ServedJob::hub_options() {
    return {
        true, {}, first_revision(), options_.status, options_.refusal, [this] { return drop(); }};
}

Result<void> ServedJob::enter(PeerId peer, const Enter& enter, std::string remote,
                              std::string local, Deadline now) {
    if (enter.member == MemberId{} || enter.slots > kSlotsMax ||
        enter.name.size() > kTextBytesMax || enter.addresses.size() > kAddressesMax ||
        enter.allowed.size() > kSizesMax)
        return fail(Errc::invalid_input, "malformed enter");
    if (enter.job_name.size() > kJobNameBytesMax)
        return fail(Errc::invalid_input, "the job's name has {} bytes, more than {}",
                    enter.job_name.size(), kJobNameBytesMax);
    if (enter.slots > 0) {
        auto done = enter_member(peer, enter, std::move(remote), std::move(local), now);
        if (!done) return done;
    } else {
        peers_[peer] = Peer{};
        hub_.add_peer(peer, PeerKind::subtree, kNoRank);
        hub_.set_group_client(peer, std::to_underlying(enter.member));
    }
    is_forgotten_ = false;  // it came before the job was dropped
    const std::uint32_t return_ms = std::min(enter.return_ms, Enter::kReturnMsMax);
    hub_.set_return_limit(peer, std::chrono::milliseconds(return_ms) + kReturnMargin);
    carry_out();
    return {};
}

Result<void> ServedJob::enter_member(PeerId peer, const Enter& enter, std::string remote,
                                     std::string local, Deadline now) {
    if (ended_) return fail(Errc::denied, "job {} has ended", escaped(options_.name));
    if (!membership_) {
        MembershipOptions options = options_of(enter);
        options.return_limit = options_.return_limit;
        membership_.emplace(options);
    }
    const MembershipOptions& options = membership_->options();
    if (membership_->has(enter.member)) {
        // The member has reconnected: its old connection is dead.
        if (const auto old = member_peers_.find(enter.member); old != member_peers_.end()) {
            hub_.remove_peer(old->second, now);
            peers_.erase(old->second);
        }
    } else if (enter.generation != 0) {
        return fail(Errc::denied, "this host was taken for lost meanwhile");
    } else if (enter.ranks_min != 0 &&
               (enter.ranks_min != options.ranks_min ||
                std::max(enter.ranks_min, enter.ranks_max) != options.ranks_max)) {
        return fail(Errc::denied,
                    "job {} has {} to {} ranks (--min-np, --max-np of its first member)",
                    escaped(options_.name), options.ranks_min, options.ranks_max);
    } else if (enter.node_rank != Enter::kAny && membership_->generation() == 0 &&
               membership_->has_node(enter.node_rank)) {
        return fail(Errc::denied, "another node is --node-rank {} already", enter.node_rank);
    }
    peers_[peer] = Peer{enter.member};
    member_peers_[enter.member] = peer;
    hub_.add_peer(peer, PeerKind::subtree, kNoRank);
    if (membership_->has(enter.member)) {
        log::info("job {}: {} is back", escaped(options_.name), escaped(enter.name));
        membership_->come_back(enter.member, enter.generation, enter.paused, now);
        return {};
    }
    log::info("job {}: {} enters with {}", escaped(options_.name), escaped(enter.name),
              plural(enter.slots, "slot"));
    Member member{enter.name,       enter.slots,     std::move(remote),
                  std::move(local), enter.free_port, enter.addresses};
    std::optional<std::uint32_t> node_rank;
    if (enter.node_rank != Enter::kAny) node_rank = enter.node_rank;
    membership_->enter(enter.member, std::move(member), now, node_rank);
    return {};
}

Result<void> ServedJob::frame(PeerId id, const FrameView& frame, Deadline now) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return fail(Errc::invalid_input, "another connection took its place");
    if (is_exchanged(frame.type)) return hub_.from_peer(id, frame, now);
    const std::optional<MemberId> member = peer->second.member;
    const bool known = frame.type == FrameType::accept || frame.type == FrameType::leave ||
                       frame.type == FrameType::rank_failed;
    if (!member || !known)
        return fail(Errc::invalid_input, "unexpected frame of type {}",
                    static_cast<int>(frame.type));
    if (frame.type == FrameType::accept) {
        const auto accept = decode<Accept>(frame.payload);
        if (!accept) return std::unexpected(accept.error());
        membership_->accept(*member, accept->generation, now);
    } else if (frame.type == FrameType::rank_failed) {
        const auto failed = decode<RankFailed>(frame.payload);
        if (!failed) return std::unexpected(failed.error());
        const std::string why = failed->why.substr(0, kTextBytesMax);
        membership_->rank_failed(*member, failed->generation, why, now);
    } else {
        const auto leave = decode<Leave>(frame.payload);
        if (!leave) return std::unexpected(leave.error());
        const std::string why = leave->why.substr(0, kTextBytesMax);
        membership_->leave(*member, leave->finished, why, now);
        carry_out();
        return fail(Errc::closed, "left");
    }
    carry_out();
    return {};
}

void ServedJob::closed(PeerId id, Deadline now) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return;
    const std::optional<MemberId> member = peer->second.member;
    hub_.remove_peer(id, now);
    peers_.erase(peer);
    unused_since_ = now;
    if (!member) return;
    member_peers_.erase(*member);
    membership_->away(*member, now);
}

void ServedJob::silent(PeerId id, const std::string& why, Deadline now) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) return;
    const std::optional<MemberId> member = peer->second.member;
    closed(id, now);
    if (!member) return;
    membership_->lost(*member, why, now);
    carry_out();
}

void ServedJob::tick(Deadline now) {
    hub_.expire(now);
    if (unused_until() <= now) {
        log::info("job {}: forgotten, as nobody was connected to it for {} s (--keep-unused)",
                  escaped(options_.name),
                  std::chrono::duration_cast<std::chrono::seconds>(*options_.keep_unused).count());
        is_forgotten_ = true;
    }
    if (!membership_ || membership_->next_deadline() > now) return;
    membership_->tick(now);
    carry_out();
}

Deadline ServedJob::next_deadline() const {
    const Deadline store = std::min(hub_.next_deadline(), unused_until());
    return membership_ ? std::min(store, membership_->next_deadline()) : store;
}

/// When a job is forgotten that is only a store, and that nobody is connected to. One with members
/// has their time limits.
Deadline ServedJob::unused_until() const {
    if (!options_.keep_unused || !peers_.empty() || membership_ || is_forgotten_)
        return Deadline::max();
    return unused_since_ + *options_.keep_unused;
}

/// Answers who wants the job dropped; the daemon does it, when the answer is under way.
StoreReply ServedJob::drop() {
    std::size_t members =
        member_peers_.size();  // also of a job that has ended: they are about to leave
    if (membership_ && !ended_) members = std::max(members, membership_->seats().size());
    const bool has_members = members > 0;
    StoreReply reply{has_members ? Status::refused : Status::ok, {}};
    PackWriter out(reply.results);
    out.array(1);
    if (has_members) {
        out.str(ended_ ? fmt::format("the job has ended, but {} of it must leave first",
                                     plural(members, "member"))
                       : fmt::format("the job has {}; end them first", plural(members, "member")));
        return reply;
    }
    is_dropped_ = true;
    out.boolean(membership_ || hub_.store().size() > 0);
    return reply;
}

/// Carries out the membership's orders.
void ServedJob::carry_out() {
    if (!membership_) return;
    const Membership::Orders orders = membership_->take_orders();
    if (orders.fences_failed) hub_.fail_fences(*orders.fences_failed);
    if (orders.begun) {
        log::info("job {}: generation {} begins with {}", escaped(options_.name),
                  membership_->generation(), plural(*orders.begun, "rank"));
        hub_.begin(membership_->generation(), *orders.begun);
    }
    for (const auto& [member, assign] : orders.assignments) send(member, encode(assign));
    for (const auto& [member, propose] : orders.proposals) {
        log::info("job {}: generation {} is coming: {}", escaped(options_.name), propose.generation,
                  escaped(propose.why, kTextBytesMax));
        send(member, encode(propose));
    }
    if (orders.ended) {
        ended_ = orders.ended;
        log::info("job {}: {}", escaped(options_.name),
                  orders.ended->finished ? "finished" : escaped(orders.ended->why, kTextBytesMax));
        for (const auto& [member, peer] : member_peers_)
            send(member, encode(Stop{SIGTERM, kGraceMs, orders.ended->why}));
    }
    unsaved_ = true;
}

void ServedJob::end(const std::string& why) {
    for (const auto& [member, peer] : member_peers_)
        send(member, encode(Stop{SIGTERM, kGraceMs, why}));
}

void ServedJob::send(MemberId member, const Bytes& frame) {
    const auto peer = member_peers_.find(member);
    if (peer == member_peers_.end()) return;
    outbox_.to_peer(peer->second, static_cast<FrameType>(frame[4]), payload_of(frame));
}

void ServedJob::save() {
    if (!std::exchange(unsaved_, false) || db_ == nullptr) return;
    JobRecord record;
    record.id = id_;
    record.name = options_.name;
    record.has_members = membership_.has_value();
    if (membership_) {
        record.options = membership_->options();
        record.membership = membership_->state();
    }
    db_->save_job(record);
}

bool ServedJob::idle() const {
    if (!peers_.empty()) return false;
    if (is_forgotten_) return true;
    if (membership_) return ended_.has_value() || membership_->seats().empty();
    // Kept answers are needed: a client whose connection broke may repeat its request.
    return hub_.store().size() == 0 && hub_.answer_bytes() == 0;
}

bool ServedJob::is_over() const {
    if (is_dropped_) return true;
    return membership_ && (ended_ || membership_->seats().empty()) && member_peers_.empty();
}

void ServedJob::retire() {
    hub_.end_waits();
}

boost::json::object ServedJob::describe(Deadline now) const {
    boost::json::object job;
    job["name"] = options_.name;
    job["phase"] = membership_ ? phase_name(membership_->phase()) : "store";
    job["generation"] = hub_.generation();
    job["keys"] = hub_.store().size();
    job["store_bytes"] = hub_.store().bytes();
    job["answer_bytes"] = hub_.answer_bytes();
    job["waiting"] = hub_.store().waiting();
    job["connections"] = peers_.size();
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
    job["ranks"] = membership_->world_size();
    job["ranks_min"] = membership_->options().ranks_min;
    job["ranks_max"] = membership_->options().ranks_max;
    boost::json::array members;
    for (const auto& [id, seat] : membership_->seats()) {
        boost::json::object member;
        member["host"] = seat.member.name;
        member["slots"] = seat.member.slots;
        member["ranks"] = seat.ranks.size();
        if (!seat.ranks.empty()) member["first_rank"] = std::to_underlying(seat.ranks.front().rank);
        boost::json::array ranks;
        for (const RankSlot& slot : seat.ranks) ranks.push_back(std::to_underlying(slot.rank));
        member["rank_list"] = std::move(ranks);
        member["connected"] = !seat.away_until.has_value();
        members.push_back(std::move(member));
    }
    job["members"] = std::move(members);
    return job;
}

}  // namespace dtrun
