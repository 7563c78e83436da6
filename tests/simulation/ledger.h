#pragma once

#include "tests/simulation/linearizable.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
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
    /// A member's place in a generation.
    struct Place {
        std::string generation;  ///< a name that no other generation of any job has
        std::uint64_t number = 0;
        std::uint32_t rank = 0, world_size = 0;
        std::string member;
    };

    /// \param store  its name, or the generation's to which it belongs
    /// \return a handle for done(). The operation counts as one of which nobody knows until then.
    std::size_t begin(const std::string& store, const std::string& key, Operation operation);
    Operation& operation(std::size_t handle) { return *operations_[handle]; }
    /// It is known that it was not done.
    void undone(std::size_t handle);
    void acknowledged() { ++acknowledged_; }

    /// A rank has learnt how a fence ended. \param group  the generation, or others who meet
    /// \throws Contradiction
    void fence_ended(const std::string& group, std::uint64_t round, std::uint32_t rank,
                     bool complete, const std::map<std::uint32_t, std::string>& entries);

    /// A member has a place. \throws Contradiction
    void placed(const Place& place);
    /// A member of a generation was told how the job has ended. \throws Contradiction
    void job_ended(const std::string& generation, const std::string& member,
                   const std::string& why);

    /// Whether all that is written down of the stores can be true. \throws Contradiction
    void check() const;

    std::size_t count() const { return acknowledged_; }
    std::size_t keys() const { return histories_.size(); }
    std::size_t fences() const { return fences_.size(); }
    std::size_t failed_fences() const;
    std::size_t generations() const { return membership_.size(); }
    /// Members that were told why their job has ended.
    std::size_t ends() const { return ends_; }
    /// The most operations that were under way on a key at the same time.
    std::size_t overlap() const;
    /// Keys of a store that are to be read once more at the end.
    std::vector<std::string> keys_of(const std::string& store) const;

private:
    struct FenceEnd {
        std::set<std::uint32_t> complete, failed;
        std::map<std::uint32_t, std::string> entries;
    };
    struct Seat {
        std::string member;
        std::optional<Place> former;
    };
    struct Generation {
        std::uint64_t number = 0;
        std::uint32_t world_size = 0;
        std::map<std::uint32_t, Seat> ranks;
    };
    void check_order(const std::string& generation) const;

    using History = std::vector<std::unique_ptr<Operation>>;
    std::map<std::pair<std::string, std::string>, History> histories_;  ///< by store and key
    std::vector<Operation*> operations_;
    std::set<const Operation*> undone_;
    std::size_t acknowledged_ = 0;
    std::map<std::pair<std::string, std::uint64_t>, FenceEnd> fences_;
    std::map<std::string, Generation> membership_;
    std::map<std::string, Place> last_places_;  ///< by member
    std::size_t ends_ = 0;
    /// By generation: why its job has ended, and who was told.
    std::map<std::string, std::pair<std::string, std::string>> ended_;
};

}  // namespace dtrun::simulation
