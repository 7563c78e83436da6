#pragma once

#include "base/result.h"
#include "collectives/group.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::collectives {

/// Finds out which rank has made a group fail. Failures spread from rank to rank: so each rank that fails leaves a note
/// in the store of whom it blames, and the one that is blamed and has left no note is gone.
///
/// Thread: any.
class Blame {
public:
    struct Group {
        KeyStore* store = nullptr;
        std::string prefix;
        std::uint32_t rank = 0;
        std::uint32_t size = 1;
        std::function<std::string(std::uint32_t)> name;  ///< "rank 5 on s2"
    };

    explicit Blame(Group group) : group_(std::move(group)) {}

    // Of the notes that this rank would leave only the first is left.
    /// \param other  nothing: it is not known who
    void put_on(std::optional<std::uint32_t> other);
    void say_why(const std::string& why);
    void say_how_ranks_disagree(const std::string& how);

    /// The rank that was the first to leave a note, unless it is this one. Errc: as KeyStore::find()
    Result<std::optional<std::uint32_t>> first_note() const;
    /// What the user is told of a failure for which this rank blames `suspect`.
    Error follow(std::uint32_t suspect, const std::string& what) const;
    /// What the user is told if blame leads to no rank, e.g. because ranks that gave up at the same moment blame each
    /// other: reads the notes of all, of the first 64 at most.
    Error survey(const std::string& what) const;

private:
    void leave(const std::string& note);
    std::optional<Error> reason_in(std::string_view note, std::uint32_t rank) const;
    std::string key(std::uint32_t rank) const;

    const Group group_;
    std::atomic<bool> has_left_ = false;  ///< its note
};

}  // namespace dtrun::collectives
