#pragma once

#include "tests/simulation/programs.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::simulation {

inline constexpr const char* kStoreJob = "store";
inline constexpr const char* kElasticJob = "elastic";

/// What a rank does with the store of its job, one operation after the other, each written down.
class StoreUser {
public:
    /// \param who  names it in histories and in what it stores: no other one has the same
    StoreUser(Script& script, embedded::Client& client, std::string job, std::string who)
        : script_(script), client_(client), job_(std::move(job)), who_(std::move(who)) {}

    /// Some operation on some key of this second. Failures: of the connection, not of the operation
    embedded::Outcome<void> do_something();
    embedded::Outcome<void> ask(Operation::Kind kind, const std::string& key,
                                const std::string& argument,
                                const std::optional<std::string>& expected = std::nullopt);
    /// A fence of all ranks, and how it ended.
    embedded::Outcome<void> meet(const std::string& job, std::uint64_t round);
    /// Whether the last read found something.
    bool has_seen() const { return last_seen_.has_value(); }
    /// Asked while it waits: whether it is to wait no longer.
    std::function<bool()> gives_up{};

private:
    void take(Operation& operation, const Bytes& results);
    void see(Operation& operation, std::string_view value);

    Script& script_;
    embedded::Client& client_;
    std::string job_, who_;
    std::uint64_t values_ = 0;
    std::optional<std::string> last_seen_;
};

/// Lets time go by, up to `most`.
void pause(World& world, microseconds most);

}  // namespace dtrun::simulation
