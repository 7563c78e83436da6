#pragma once
// Members of a daemon's job as it sees them: what they say, and what they are told.

#include "rendezvous/daemon/served_job.h"
#include "rendezvous/wire/job_key.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/sent_frames.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::guests {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

/// A job of a daemon, in a time of its own, whose members are played by a test.
class Guests final : private Outbox {
public:
    explicit Guests(JobPolicy policy) : policy_(std::move(policy)) {
        auto db = StateDb::open(directory_.path() + "/state");
        REQUIRE(db);
        db_ = std::move(*db);
        job_ = std::make_unique<ServedJob>(job_id_of("job"), options(), static_cast<Outbox&>(*this),
                                           db_.get(), now);
    }

    /// A host with so many slots enters, or comes back over a new connection.
    Result<void> enter(std::uint64_t who, std::uint32_t slots = 1,
                       std::uint32_t node_rank = Enter::kAny) {
        Guest& guest = guests_[who];
        guest.slots = slots;
        guest.peer = ++peers_;
        Enter enter;
        enter.member = MemberId{who};
        enter.job_name = "job";
        enter.name = "s" + std::to_string(who);
        enter.slots = slots;
        enter.policy = policy_;
        enter.again = guest.was_let_in;
        enter.heard = guest.heard.last();
        enter.free_port = static_cast<std::uint16_t>(20'000 + who);
        enter.node_rank = node_rank;
        auto done =
            job().enter(guest.peer, enter, "10.0.0." + std::to_string(who), "10.0.0.100", now);
        if (!done) return done;
        guest.was_let_in = true;
        for (const Bytes& frame : guest.sent.unheard())
            if (done = raw(who, frame); !done) return done;
        return {};
    }
    template <class Message>
    void say(std::uint64_t who, const Message& message) {
        const Bytes frame = guests_[who].sent.add(encode(message));
        if (guests_[who].peer != 0) (void)raw(who, frame);
    }
    void exit(std::uint64_t who, std::uint32_t place, int code) {
        Exited exited;
        exited.place = SlotIndex{place};
        for (const RankSlot& slot : told(who).assign.ranks)
            if (slot.place == exited.place) exited.rank = slot.rank;
        exited.pid = 1;
        exited.code = code;
        say(who, exited);
    }
    void desk(std::uint64_t who, RejoinState state) { say(who, RejoinStatus{SlotIndex{0}, state}); }
    /// Those that were told to end their ranks have done so.
    void pause(std::initializer_list<std::uint64_t> all) {
        for (const std::uint64_t who : all) say(who, Paused{job().generation() + 1});
    }
    /// The connection breaks; what the job says meanwhile is not heard.
    void cut(std::uint64_t who) { job().closed(std::exchange(guests_[who].peer, 0), now); }
    void lose(std::uint64_t who) {
        job().silent(std::exchange(guests_[who].peer, 0), "silent", now);
    }
    void leave(std::uint64_t who, bool finished, const std::string& why = {}) {
        say(who, Leave{finished, why});
        job().closed(std::exchange(guests_[who].peer, 0), now);
    }
    /// The daemon is killed when all that it has said is on its disk, and another one goes on; nobody is connected.
    void restart() { restart_from(saved()); }
    /// The same with what the disk had at another time.
    void restart_from(const SavedJob& record) {
        for (auto& [who, guest] : guests_) guest.peer = 0;
        job_ = std::make_unique<ServedJob>(record, options(), static_cast<Outbox&>(*this), *db_,
                                           now, 10s);
    }
    SavedJob saved() {
        job().save();
        db_->commit();
        const auto records = db_->jobs();
        REQUIRE(records.size() == 1);
        return records[0];
    }
    void pass(milliseconds span) {
        now += span;
        job().tick(now);
    }

    /// What a member was told last, of each kind.
    struct Told {
        Assign assign;
        std::optional<Pause> pause;
        std::optional<Notify> notify;
        std::optional<Prepare> prepare;
        std::optional<QueryCommit> query_commit;
        std::optional<ResetConnections> reset_connections;
        std::optional<EndRanks> ends;
        std::optional<Stop> stop;
        int assigned = 0;  ///< how often
    };
    Told& told(std::uint64_t who) { return guests_[who].told; }
    /// Ranks of each member, in order of their numbers.
    std::vector<std::uint32_t> ranks(std::uint64_t who) {
        std::vector<std::uint32_t> ranks;
        for (const RankSlot& slot : told(who).assign.ranks)
            ranks.push_back(std::to_underlying(slot.rank));
        return ranks;
    }
    std::string phase() { return std::string(job().describe(now).at("phase").as_string()); }

    ServedJob& job() { return *job_; }
    Deadline now{std::chrono::hours(1)};

private:
    struct Guest {
        std::uint32_t slots = 1;
        PeerId peer = 0;
        bool was_let_in = false;
        SentFrames sent;
        HeardFrames heard;
        Told told;
    };

    static ServedJob::Options options() {
        ServedJob::Options options;
        options.name = "job";
        return options;
    }
    Result<void> raw(std::uint64_t who, const Bytes& frame) {
        const auto type = static_cast<FrameType>(frame[4]);
        return job().frame(guests_[who].peer, {type, payload_of(frame)}, now);
    }

    void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
        for (auto& [who, guest] : guests_) {
            if (guest.peer != peer) continue;
            if (type == FrameType::heard) {
                REQUIRE(guest.sent.heard(decode<Heard>(payload)->number));
            } else if (type == FrameType::numbered) {
                REQUIRE(guest.heard.take(payload, [&guest](const FrameView& frame) -> Result<void> {
                    take(guest.told, frame);
                    return {};
                }));
            } else if (type == FrameType::stop) {
                guest.told.stop = *decode<Stop>(payload);
            }
        }
    }
    void to_root(FrameType, std::string_view) override {}

    static void take(Told& told, const FrameView& frame) {
        switch (frame.type) {
            case FrameType::assign:
                told.assign = *decode<Assign>(frame.payload);
                ++told.assigned;
                return;
            case FrameType::pause:
                told.pause = *decode<Pause>(frame.payload);
                return;
            case FrameType::notify:
                told.notify = *decode<Notify>(frame.payload);
                return;
            case FrameType::prepare:
                told.prepare = *decode<Prepare>(frame.payload);
                return;
            case FrameType::query_commit:
                told.query_commit = *decode<QueryCommit>(frame.payload);
                return;
            case FrameType::reset_connections:
                told.reset_connections = *decode<ResetConnections>(frame.payload);
                return;
            case FrameType::end_ranks:
                told.ends = *decode<EndRanks>(frame.payload);
                return;
            case FrameType::stop:
                told.stop = *decode<Stop>(frame.payload);
                return;
            default:
                FAIL("a member was sent a frame of type " << static_cast<int>(frame.type));
        }
    }

    const TempDir directory_;
    std::unique_ptr<StateDb> db_;
    JobPolicy policy_;
    std::map<std::uint64_t, Guest> guests_;
    PeerId peers_ = 0;
    std::unique_ptr<ServedJob> job_;
};

inline JobPolicy sizes(std::uint32_t min, std::uint32_t max) {
    JobPolicy policy;
    policy.ranks_min = policy.ranks_start = min;
    policy.sizes.max = max;
    policy.last_call = 2s;
    return policy;
}

}  // namespace dtrun::guests
