#pragma once

#include "base/numbered.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace dtrun {

/// How often each rank of a host has come to the fences of a generation, by name: programs that run in it one
/// after the other, or beside each other, go on counting where others of the same rank have stopped. Pure.
///
/// Memory: a program may name its fences by steps, so names are known by hashes of 64 bits, and those at which nobody
/// has been for longest are forgotten: at least the last kNamesKept are known, and at most twice as many.
class RankRounds {
public:
    /// More than a hub remembers: one that comes back to a name must not be at a round that the hub knows to be over.
    static constexpr std::size_t kNamesKept = 98'304;

    explicit RankRounds(std::size_t names_kept = kNamesKept) : names_kept_(names_kept) {}
    void clear() { *this = RankRounds(names_kept_); }

    /// The round of the rank's next arrival.
    std::uint64_t next(Rank rank, std::string_view name) const;
    void came(Rank rank, std::string_view name, std::uint64_t round);
    /// Its arrival does not count: its connection has ended before the others had come.
    void take_back(Rank rank, std::string_view name, std::uint64_t round);
    /// All ranks have been there.
    void completed(std::string_view name, std::uint64_t round);

private:
    using Name = std::uint64_t;  ///< its hash
    using Rounds =
        std::unordered_map<Name, std::uint64_t>;  ///< the next of each rank that is not in ahead_
    using Ahead = std::map<std::pair<Name, Rank>, std::uint64_t>;

    static Name hash_of(std::string_view name);
    std::uint64_t* find(Name name);
    void forget_oldest();

    std::size_t names_kept_;
    Rounds newest_;  ///< of names at which somebody has been since the others were put aside
    Rounds oldest_;  ///< of names that were put aside
    Ahead ahead_;    ///< the next of ranks that have been there more often than all
};

}  // namespace dtrun
