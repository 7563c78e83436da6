#pragma once

#include "tests/simulation/programs.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::simulation {

inline constexpr const char* kStoreJob = "store";

/// What a rank does with the store of its job, one operation after the other, each written down.
class StoreUser {
public:
    /// \param who  names it in histories and in what it stores: no other one has the same
    StoreUser(Script& script, embedded::Client& client, std::string store, std::string who);
    ~StoreUser();
    StoreUser(const StoreUser&) = delete;
    StoreUser& operator=(const StoreUser&) = delete;

    /// Learns in which generation the client is, and writes down its place there.
    /// \param member  whose place it is; empty: its own
    embedded::Outcome<void> take_place(const std::string& member = "");
    void meets_in(const std::string& group) { group_ = group; }
    /// It was told why its job has ended.
    void told_end(const std::string& why);

    /// Some operation on some key of this second. Failures: of the connection, not of the operation
    embedded::Outcome<void> do_something();
    embedded::Outcome<void> ask(Operation::Kind kind, const std::string& key,
                                const std::string& argument,
                                const std::optional<std::string>& expected = std::nullopt);
    /// Takes a lock, does something with its token, and lets it go.
    embedded::Outcome<void> hold_lock();
    /// Puts an item into a queue, or claims one and says that it is done, or gives it back.
    embedded::Outcome<void> work_on_items();
    /// Claims and acknowledges what is left in the queues, and what those leave who are gone.
    embedded::Outcome<void> drain_items();
    /// A fence of all ranks, and how it ended. Some wait for ever: until all have come or one has failed.
    embedded::Outcome<void> meet();
    /// Whether the last read found something.
    bool has_seen() const { return last_seen_.has_value(); }
    const std::string& who() const { return who_; }
    const Process& process() const { return process_; }
    /// Whether it got an answer since all is calm.
    bool was_served() const { return served_; }
    /// Asked while it waits: whether it is to wait no longer.
    std::function<bool()> gives_up{};

private:
    void acknowledged();
    /// \return nothing: it was not done, or nobody knows
    embedded::Outcome<std::optional<Bytes>> ask_owned(StoreRequest request, std::int64_t timeout_ms,
                                                      OwnedLedger::Span& span);
    embedded::Outcome<bool> ask_whether(const StoreRequest& request, OwnedLedger::Span& span,
                                        bool& is_known);
    embedded::Outcome<bool> finish_item(const std::string& queue, std::int64_t timeout_ms);
    void take(Operation& operation, const Bytes& results);
    void see(Operation& operation, std::string_view value);

    Script& script_;
    embedded::Client& client_;
    const Process& process_;
    std::string store_, who_;
    std::string group_;  ///< who meets at fences: the generation, or a run of another launcher
    std::uint64_t round_ = 0;
    std::uint64_t values_ = 0;
    bool served_ = false;
    std::optional<std::string> last_seen_;
};

/// Lets time go by, up to `most`.
void pause(World& world, microseconds most);

}  // namespace dtrun::simulation
