#pragma once

#include "base/result.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/client/connect/launchers.h"

#include <atomic>
#include <cstdint>
#include <string>

namespace dtrun::embedded {

/// Where a process stands among the ranks. Generations only grow.
///
/// Thread: guarded by its owner's lock, but for what says otherwise.
class ClientMembership {
public:
    explicit ClientMembership(RankInfo info);

    const RankInfo& rank_info() const { return info_; }
    bool is_placed() const { return placed_; }
    /// The generation of rank_info(). Any thread may ask, without the lock.
    std::uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }
    /// These do not change once it is placed; then any thread, without the lock.
    const std::string& job() const { return info_.job; }
    const std::string& host_name() const { return info_.host_name; }

    /// The answer to a first word has come. The first one may bring a place.
    void welcome() { placed_ = true; }
    void welcome(RankInfo info);
    /// An agent has given it a place in a later generation. \return whether that is news
    bool move(const RankInfo& info);
    /// \return whether it is a new place. Errc: invalid_input
    Result<bool> assign(const Assign& assign);

private:
    RankInfo info_;
    std::atomic<std::uint64_t> generation_;  ///< info_.generation
    bool placed_ = false;
};

}  // namespace dtrun::embedded
