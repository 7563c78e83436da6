#pragma once

#include "base/numbered.h"
#include "rendezvous/daemon/state_db.h"
#include "rendezvous/exchange/hub.h"
#include "rendezvous/job/change_notice.h"
#include "rendezvous/job/membership.h"
#include "rendezvous/job/world.h"
#include "rendezvous/wire/gathering.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/sent_frames.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun {

/// One job of a daemon: its members and its hub. Pure except for the journal: it turns frames and
/// time into frames.
///
/// A member is a host that has come by itself. What its agent says of ranks comes here, and Membership decides what
/// follows, as in a job of a head.
///
/// The frames it sends must be held until the journal's records are on disk.
class ServedJob final {
public:
    struct Options {
        std::string name;
        std::chrono::milliseconds return_limit{kHeartbeatTimeout};  ///< for a connection that broke
        std::function<std::string()> status;                        ///< answers `status`
        /// Why a change of so many bytes is refused; empty: it is not.
        std::function<std::optional<StoreReply>(Op op, std::size_t bytes)> refusal;
        /// How long a job is kept that nobody is connected to; nothing: until it is dropped.
        std::optional<std::chrono::milliseconds> keep_unused;
        /// What the disk has damaged of it: it is refused until it is dropped. Empty: nothing.
        std::string damage;
    };
    /// \param db  nullptr: nothing is kept
    ServedJob(JobId id, Options options, Outbox& outbox, StateDb* db, Deadline now);
    /// Restores a recorded job; members have `limit` to reconnect.
    ServedJob(const SavedJob& record, Options options, Outbox& outbox, StateDb& db, Deadline now,
              std::chrono::milliseconds limit);

    /// The first frame of a connection.
    /// \param local, remote  the connection's ends, numeric
    /// Errc: denied, invalid_input: the peer is refused with this text
    Result<void> enter(PeerId peer, const Enter& enter, std::string remote, std::string local,
                       Deadline now);
    /// Any other frame. Errc: invalid_input (the peer is to be cut off)
    Result<void> frame(PeerId peer, const FrameView& frame, Deadline now);
    /// The peer may reconnect, unless it is lost.
    void closed(PeerId peer, Deadline now, bool is_lost = false);
    void silent(PeerId peer, const std::string& why, Deadline now);  ///< the peer is lost
    void tick(Deadline now);
    /// This process did not run in between.
    void stood_still(Deadline from, Deadline until);
    Deadline next_deadline() const;
    /// Ends the job for all, because the daemon ends.
    void end(const std::string& why);

    /// Whether there are no connections and nothing is kept for later ones.
    bool idle() const;
    /// Whether its name is free, though clients may still use its store: it had members and all have
    /// gone, or a client has dropped it.
    bool is_over() const;
    bool is_dropped() const { return is_dropped_; }
    /// Another job takes this one's name: requests that wait in the store are answered with
    /// `stale`.
    void retire();
    /// Records changes of the members; to be called before held frames are sent.
    void save();
    /// Records that somebody is connected, who may stay for longer than a daemon lives.
    void save_use();
    const std::string& name() const { return options_.name; }
    std::uint64_t generation() const { return membership_ ? membership_->generation() : 0; }
    boost::json::object describe(Deadline now) const;
    /// What members are told that may have no ranks; nothing: all of them have theirs.
    std::optional<Gathering> gathering(Deadline now) const;
    /// Of its store, of what waits there, and of kept answers.
    std::size_t bytes() const {
        const Store& store = hub_.store();
        return store.bytes() + store.waiting_bytes() + store.history_bytes() + hub_.answer_bytes();
    }
    /// The part of it that the job can do without.
    std::size_t history_bytes() const { return hub_.store().history_bytes(); }
    void forget_history() { hub_.forget_history(); }

private:
    /// A member's place in the conversation with it, which outlives its connections.
    struct MemberState {
        HostId host{};
        std::uint64_t order = 0;  ///< see Membership::host_listed()
        SentFrames sent;
        HeardFrames heard;
        std::optional<PeerId> peer{};
        std::optional<Deadline> away_until{};  ///< without a connection

        template <class Self, class F>
        static void fields(Self& m, F&& f) {
            f("host", m.host), f("order", m.order), f("sent", m.sent), f("heard", m.heard);
        }
    };
    struct Peer {
        std::optional<MemberId> member;  ///< nothing: a client of the store only
    };

    Result<void> enter_member(PeerId peer, const Enter& enter, std::string remote,
                              std::string local, Deadline now);
    Result<void> may_enter(const Enter& enter) const;
    Result<void> may_say(const FrameView& frame) const;
    Error damaged() const;
    void add_member(const Enter& enter, Deadline now, std::string remote, std::string local);
    void restore_members(const SavedJob& record, Deadline now, std::chrono::milliseconds limit);
    HostId free_host();
    Result<void> from_member(MemberId id, const FrameView& frame, Deadline now);
    Result<void> rank_exited(HostId host, std::string_view payload, Deadline now);
    void remove(MemberId id, const std::string& why, Deadline now);
    HubOptions hub_options();
    StoreReply drop();
    Deadline unused_until() const;
    Clock::duration unused_at_start(Clock::duration unused, Clock::duration limit) const;
    void carry_out();
    void tell_change(const std::optional<Membership::Warning>& warning);
    void begin(const std::vector<RankAssignment>& world);
    void finish(const Membership::End& end);
    void finish(const std::string& why, MemberId because_of);
    std::string text_of(const Membership::End& end) const;
    template <class Message>
    void send(HostId host, const Message& message);
    template <class Message>
    void send_to_all(const Message& message);
    void send(MemberState& state, const Bytes& frame);
    void send_now(PeerId peer, const Bytes& frame);
    boost::json::object describe(const MemberState& state, boost::json::array ranks) const;

    JobId id_;
    Options options_;
    Outbox& outbox_;
    StateDb* db_;
    std::unique_ptr<HubJournal> journal_;
    std::optional<Membership> membership_;  ///< once a member has entered
    Hub hub_;
    std::map<PeerId, Peer> peers_;
    std::map<MemberId, MemberState> members_;
    PerHost<Member> hosts_;  ///< as their members have described them; without slots: it has gone
    PerHost<MemberId> owners_;
    ChangeNotice notice_;
    std::optional<std::string> ended_;  ///< why; empty: it has succeeded
    Deadline known_since_;              ///< when it began, or this daemon did
    Deadline unused_since_;      ///< when the last connection has ended, maybe of another daemon
    bool is_forgotten_ = false;  ///< nobody has used it for too long
    bool is_dropped_ = false;
    bool unsaved_ = true;  ///< something of the members is not recorded yet
};

}  // namespace dtrun
