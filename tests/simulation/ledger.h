#pragma once

#include "tests/simulation/linearizable.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace dtrun::simulation {

/// Two things that dtrun has told its users, and that cannot both be true.
class Contradiction : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// What programs were told, written down by them as soon as they know it, and held against what others
/// were told: for whatever can be seen at once by the call that tells it, else by check().
class Ledger {
public:
    /// A store: a job's, or that of a generation.
    using Store = std::pair<std::string, std::uint64_t>;

    /// \return a handle for done(). The operation counts as one of which nobody knows until then.
    std::size_t begin(const Store& store, const std::string& key, Operation operation);
    Operation& operation(std::size_t handle) { return *operations_[handle]; }
    /// It is known that it was not done.
    void undone(std::size_t handle);
    void acknowledged() { ++acknowledged_; }

    /// A rank has come to a fence with these bytes, and learnt how it ended.
    /// \throws Contradiction
    void fence_ended(const std::string& job, std::uint64_t generation, const std::string& name,
                     std::uint64_t round, std::uint32_t rank, bool complete,
                     const std::map<std::uint32_t, std::string>& entries);

    /// A member has its place in a generation. \throws Contradiction
    void placed(const std::string& job, std::uint64_t generation, std::uint32_t rank,
                std::uint32_t world_size, const std::string& member);
    /// A member was told how the job has ended. \throws Contradiction
    void job_ended(const std::string& job, const std::string& member, const std::string& why);

    /// Whether all that is written down of the stores can be true. \throws Contradiction
    void check() const;

    std::size_t count() const { return acknowledged_; }
    std::size_t keys() const { return histories_.size(); }
    std::size_t fences() const { return fences_.size(); }
    std::size_t generations() const { return generations_.size(); }
    /// The most operations that were under way on a key at the same time.
    std::size_t overlap() const;
    /// Keys of a store that are to be read once more at the end.
    std::vector<std::string> keys_of(const Store& store) const;

private:
    struct FenceEnd {
        std::set<std::uint32_t> complete, failed;
        std::map<std::uint32_t, std::string> entries;
    };
    struct Generation {
        std::uint32_t world_size = 0;
        std::map<std::uint32_t, std::string> ranks;
    };
    void check_order(const std::string& job, std::uint64_t generation) const;

    using History = std::vector<std::unique_ptr<Operation>>;
    std::map<std::pair<Store, std::string>, History> histories_;
    std::vector<Operation*> operations_;
    std::set<const Operation*> undone_;
    std::size_t acknowledged_ = 0;
    std::map<std::tuple<std::string, std::uint64_t, std::string, std::uint64_t>, FenceEnd> fences_;
    std::map<std::pair<std::string, std::uint64_t>, Generation> generations_;
    std::map<std::string, std::uint64_t> last_generation_;  ///< by member
    std::map<std::string, std::pair<std::string, std::string>>
        ended_;  ///< by job: why, who was told
};

}  // namespace dtrun::simulation
