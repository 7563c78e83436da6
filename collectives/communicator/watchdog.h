#pragma once

#include "base/result.h"
#include "collectives/communicator/blame.h"
#include "collectives/communicator/call.h"
#include "collectives/communicator/stall_teller.h"
#include "collectives/group.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace dtrun::collectives {

/// A watchdog thread for a group's operations. When an operation takes longer than a second, the
/// thread compares calls with other ranks through the job's store, and aborts the operation if
/// ranks disagree about it or about a message's size, if one waits for a message of another that
/// waits for it in an operation of all ranks, if a rank has failed, or if the membership is over.
/// After a broken connection it finds out which rank was lost (Blame). Ranks that do not come are told, and
/// nothing is ended by that.
///
/// begin() and end() cost no system call, no lock and no look at a clock: they leave notes, and the thread takes
/// the time.
class Watchdog {
public:
    struct Options {
        KeyStore* store = nullptr;
        std::string prefix;
        std::uint32_t rank = 0;
        std::uint32_t size = 1;
        std::vector<std::uint32_t> ranks{};    ///< of the job, by rank of the group
        std::chrono::milliseconds timeout{0};  ///< of an operation; 0: none
        StallTeller::Options stall{};
        std::function<std::string(std::uint32_t)> name;  ///< "rank 5 on s2"
        std::function<void()> abort;  ///< ends what is under way; from any thread
        /// Store key at which a rank says in what it waits, the same for all its groups. May be empty.
        std::function<std::string(std::uint32_t)> whereabouts{};
    };

    explicit Watchdog(Options options);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// An operation begins.
    /// \return a number that is the same on all ranks that do the same
    std::uint64_t begin(const Call& call);
    void end();
    /// Undoes begin() for an operation whose arguments were refused here.
    void withdraw(const Call& call);

    /// Turns a failed operation's error into the one that the user is told.
    Error explain(const Error& error, std::optional<std::uint32_t> lost);
    /// Ranks disagree about the operation under way, as the backend has found out: tells the others.
    void disagreed(const std::string& how);
    /// Aborts the operation under way for this reason, and tells the other ranks.
    void abort(const std::string& why);
    /// A rank of this generation is lost, as the launcher says: nobody can finish what is under way. From any
    /// thread.
    void membership_ended();
    /// How long an operation may take, also one that is under way; 0: for ever. From any thread.
    void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
    std::chrono::milliseconds timeout() const { return timeout_; }
    /// After which time ranks that do not come are told; 0: never. From any thread.
    void set_stall_limit(std::chrono::milliseconds limit) { stall_.set_limit(limit); }
    /// Store keys of this rank's recent calls, of its message under way and of how many messages it has sent and
    /// received; they may be erased when the group ends. That of `whereabouts` belongs to other groups, too.
    std::vector<std::string> keys() const;

private:
    std::string at_key() const { return key("at", options_.rank); }
    std::string message_key() const { return key("message", options_.rank); }
    void run();
    void look(std::uint64_t version, std::chrono::milliseconds since);
    void tell_idle(std::uint64_t version, std::chrono::milliseconds since);
    std::string recent() const;
    bool goes_on();
    bool tell(const std::string& key, const std::string& text);
    void tell_whereabouts(const std::string& call);
    void take_back_whereabouts();
    std::string elsewhere(std::uint32_t rank);
    std::string message_counts() const;
    bool tell_messages();
    bool compare_calls(std::uint64_t version, std::uint64_t number, std::string_view ours);
    bool compare_messages(const Call& call, std::uint64_t number, std::chrono::milliseconds since);
    void look_for_stall(const Call& call, std::uint64_t number, std::chrono::milliseconds since);
    bool is_there(const Message& message, std::string_view their_way);
    bool differs(const Message& message, std::string_view their_way, std::size_t element);
    bool is_crossed(const Call& call, const Message& message, std::uint64_t number);
    bool disagrees(std::uint32_t other, std::string_view ours);
    void give_up_on(std::uint32_t other, std::string_view ours, std::string_view theirs);
    void give_up(Errc code, std::string why);
    /// Ranks of which it is known whether they have come to an operation of all.
    struct Presence {
        std::vector<std::uint32_t> waiting, missing;
        std::string among;   ///< "ranks 64-127" if only these were asked; "": all were
        bool speaks = true;  ///< this rank is the one that tells the user
    };
    std::optional<Presence> presence(std::uint64_t number);
    std::optional<Presence> presence_in_block(std::uint32_t first, std::uint64_t number);
    std::string name_all(std::span<const std::uint32_t> ranks);
    std::string absent(std::uint64_t number);
    std::string key(std::string_view kind, std::uint32_t rank) const;

    const Options options_;
    std::atomic<std::chrono::milliseconds> timeout_;
    StallTeller stall_;
    Blame blame_;
    std::mutex mutex_;
    std::condition_variable stop_;
    bool stopping_ = false;
    std::optional<Error> verdict_;

    static constexpr std::uint64_t kRecent = 16;

    std::atomic<std::uint64_t> version_ = 0;  ///< odd while an operation is under way
    std::atomic<std::uint64_t> number_ = 0;   ///< of collective operations
    std::atomic<bool> collective_ = true;     ///< the operation under way is
    std::array<SharedCall, kRecent> calls_;   ///< collective ones, by number modulo kRecent
    SharedCall message_;                      ///< the last other one
    struct Counts {
        std::atomic<std::uint64_t> sent = 0;
        std::atomic<std::uint64_t> received = 0;
    };
    std::vector<Counts> messages_;  ///< by peer; written by the thread that operates

    std::mutex told_mutex_;   ///< held also while at_key() is written: withdraw() has the last word
    std::uint64_t told_ = 0;  ///< number of the last operation that was written to the store
    std::uint64_t idle_after_ = 0;  ///< that of the operation which others know to be over here
    std::uint64_t idle_at_ = 0;     ///< version at which others were told so last

    std::string waits_in_;  ///< what others were told of that; of the thread
    std::thread thread_;
};

}  // namespace dtrun::collectives
