// What a daemon's disk holds of a job's members, and how a daemon goes on with it, or does not.

#include "rendezvous/daemon/served_job.h"

#include "base/strings.h"
#include "rendezvous/wire/fields_codec.h"
#include "rendezvous/wire/msgpack.h"

#include <utility>

namespace dtrun {
namespace {

/// What a daemon keeps of a member.
struct SavedMember {
    Bytes state;
    std::string name;
    std::uint32_t slots = 0;
    std::string peer_address, server_address;
    std::uint16_t free_port = 0;
    std::vector<std::string> addresses;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("seat", m.state), f("name", m.name), f("slots", m.slots);
        f("peer_address", m.peer_address), f("server_address", m.server_address);
        f("free_port", m.free_port), f("addresses", m.addresses);
    }
};

template <class T>
Bytes packed(const T& value) {
    Bytes bytes;
    PackWriter out(bytes);
    pack(out, value);
    return bytes;
}

template <class T>
T unpacked(std::string_view bytes) {
    T value;
    PackReader in(bytes);
    unpack(in, value);
    return value;
}

}  // namespace

ServedJob::ServedJob(const SavedJob& record, Options options, Outbox& outbox, StateDb& db,
                     Deadline now, std::chrono::milliseconds limit)
    : id_(record.id),
      options_(std::move(options)),
      outbox_(outbox),
      db_(&db),
      journal_(db.journal(record.id)),
      hub_(outbox, hub_options(), journal_.get()),
      known_since_(now),
      unused_since_(now) {
    if (options_.keep_unused) unused_since_ -= unused_at_start(db.served() - record.used, limit);
    if (!record.policy.empty()) restore_members(record, now, limit);
    const auto ranks = membership_ ? membership_->world().size() : 0;
    hub_.restore_generation(generation(), static_cast<std::uint32_t>(ranks));
    db.restore(record.id, hub_, now);
    unsaved_ = false;
    if (membership_ && membership_->is_finishing()) hub_.fail_fences("a rank has finished");
    carry_out();
}

/// For how long nobody has been connected, at the start of a daemon. What is not known counts as used, and who was
/// connected has some time to come back.
Clock::duration ServedJob::unused_at_start(Clock::duration unused, Clock::duration limit) const {
    const Clock::duration keep = *options_.keep_unused;
    const Clock::duration known = unused - std::min<Clock::duration>(keep, kUseUnknown);
    return std::clamp(known, Clock::duration(0), std::max(keep - limit, Clock::duration(0)));
}

void ServedJob::restore_members(const SavedJob& record, Deadline now,
                                std::chrono::milliseconds limit) {
    membership_.emplace(unpacked<JobPolicy>(record.policy));
    for (const auto& [id, bytes] : record.members) {
        const auto saved = unpacked<SavedMember>(bytes);
        MemberState& state = members_[id] = unpacked<MemberState>(saved.state);
        state.away_until = now + limit;
        while (!hosts_.has(state.host)) hosts_.emplace_back();
        hosts_[state.host] = {saved.name,           saved.slots,     saved.peer_address,
                              saved.server_address, saved.free_port, saved.addresses};
    }
    while (hosts_.size() < record.hosts.size()) hosts_.emplace_back();
    while (owners_.size() < hosts_.size()) owners_.emplace_back();
    for (const auto& [id, state] : members_) owners_[state.host] = id;
    if (const auto done = membership_->restore(record.job, record.hosts, now, limit); !done)
        finish(done.error().message, {});
    else if (membership_->phase() == Membership::Phase::ended)
        ended_ = "the job has ended";
}

void ServedJob::save() {
    if (!std::exchange(unsaved_, false) || db_ == nullptr || !options_.damage.empty()) return;
    SavedJob record;
    record.id = id_;
    record.name = options_.name;
    const auto unused = peers_.empty() ? Clock::now() - unused_since_ : Clock::duration(0);
    record.used = std::max(db_->served() - std::chrono::duration_cast<std::chrono::seconds>(unused),
                           std::chrono::seconds(0));
    if (membership_) {
        record.policy = packed(membership_->policy());
        record.job = membership_->save_job();
        for (const HostId host : hosts_.hosts())
            record.hosts.push_back(membership_->save_host(host));
    }
    for (const auto& [id, state] : members_) {
        const Member& host = hosts_[state.host];
        record.members[id] =
            packed(SavedMember{packed(state), host.name, host.slots, host.peer_address,
                               host.server_address, host.free_port, host.addresses});
    }
    db_->save_job(record);
}

void ServedJob::save_use() {
    if (peers_.empty()) return;
    unsaved_ = true;
    save();
}

/// Who comes to a damaged job can drop it, and is refused else.
Result<void> ServedJob::may_say(const FrameView& frame) const {
    if (options_.damage.empty()) return {};
    if (frame.type == FrameType::heartbeat || frame.type == FrameType::gone) return {};
    const auto request = decode_request(frame.payload);
    const bool is_drop = frame.type == FrameType::request && request &&
                         (request->header.op == Op::drop || request->header.op == Op::status);
    return is_drop ? Result<void>{} : std::unexpected(damaged());
}

Error ServedJob::damaged() const {
    const std::string name = escaped(options_.name);
    return {Errc::denied,
            fmt::format("job {} is damaged on the daemon's disk: {}; it is refused until a backup "
                        "is restored, or it begins anew: dtrun store drop --job '{}'",
                        name, options_.damage, name)};
}

}  // namespace dtrun
