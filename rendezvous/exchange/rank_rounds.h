#pragma once

#include "base/numbered.h"

#include <cstdint>
#include <map>
#include <string>

namespace dtrun {

/// How often each rank of a host has come to the fences of a generation, by name: programs that run in it one
/// after the other, or beside each other, go on counting where others of the same rank have stopped. Pure.
///
/// Memory: of the names at which nobody has been for longest, so many are kept that only a program that
/// comes back to one after hundreds of thousands of others would notice.
class RankRounds {
public:
    void clear() { *this = RankRounds(); }

    /// The round of the rank's next arrival.
    std::uint64_t next(Rank rank, const std::string& name) const;
    void came(Rank rank, const std::string& name, std::uint64_t round);
    /// Its arrival does not count: its connection has ended before the others had come.
    void take_back(Rank rank, const std::string& name, std::uint64_t round);
    /// All ranks have been there.
    void completed(const std::string& name, std::uint64_t round);

private:
    struct Rounds {
        std::uint64_t all = 0;                ///< the next of each rank that is not in `ahead`
        std::map<Rank, std::uint64_t> ahead;  ///< the next of ranks that have been there more often
        std::uint64_t number = 0;             ///< of the last arrival
    };
    void forget_oldest();

    std::map<std::string, Rounds> names_;
    std::map<std::uint64_t, std::string> order_;  ///< names by number
    std::uint64_t arrivals_ = 0;
    std::size_t bytes_ = 0;  ///< of the names
};

}  // namespace dtrun
