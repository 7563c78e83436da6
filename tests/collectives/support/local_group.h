#pragma once

#include "collectives/group.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace dtrun::collectives {

/// What connects ranks that are threads of one process: no sockets, and a network that is as slow
/// as one likes.
class LocalNetwork {
public:
    struct Options {
        std::uint64_t seed = 0;                  ///< of the delays
        std::chrono::microseconds delay_max{0};  ///< each message is late by up to that
        double bytes_per_second = 0;             ///< which a rank can send; 0: any
    };

    explicit LocalNetwork(std::uint32_t size) : LocalNetwork(size, Options{}) {}
    LocalNetwork(std::uint32_t size, Options options);

    /// The group of `rank`, which may be called once for each. The network outlives it.
    std::unique_ptr<Group> connect(std::uint32_t rank);
    std::uint32_t size() const { return size_; }
    /// A rank dies: whoever waits for it gets Errc::closed.
    void kill(std::uint32_t rank);

private:
    friend class LocalGroup;
    friend class LocalPending;
    using Clock = std::chrono::steady_clock;

    /// A message. Data are copied from one rank's memory to the other's late, so that a rank that
    /// touches them too early is found out.
    struct Transfer {
        enum class State { unmatched, matched, copying, done, given_up };
        State state = State::unmatched;
        std::uint32_t from = 0;
        std::uint32_t to = 0;
        const void* source = nullptr;
        void* target = nullptr;
        std::size_t sent_bytes = 0;
        std::size_t received_bytes = 0;
        bool has_send = false;
        bool has_receive = false;
        Clock::time_point due;  ///< when it arrives
    };
    using Shared = std::shared_ptr<Transfer>;

    /// Takes the other side's transfer, or leaves one for it. With mutex_ held.
    Shared post(std::uint32_t from, std::uint32_t to, bool send);
    void schedule(Transfer& transfer, std::size_t bytes);
    bool broken() const { return aborted_ || killed_.has_value(); }

    const std::uint32_t size_;
    const Options options_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Shared>> unmatched_;
    std::vector<Clock::time_point> free_at_;  ///< of each rank's way out
    std::uint64_t messages_ = 0;
    std::optional<std::uint32_t> killed_;
    bool aborted_ = false;
};

}  // namespace dtrun::collectives
