#pragma once

#include "rendezvous/exchange/exchange.h"
#include "rendezvous/wire/exchange_messages.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun {

/// Approximate size of entries in a frame, in bytes.
std::size_t entry_bytes(const std::vector<FenceEntry>& entries);
/// Takes what a rank says of its own arrival: nothing for others, and under no name but its own.
/// Errc: invalid_input
Result<void> make_own(Fence& fence, Rank rank);
inline constexpr const char* kTooManyBytes = "the ranks brought too many bytes; use the store";
inline constexpr const char* kTwice = "has come to this round of it before";

/// Arrivals at the fences of one generation, at one node of the tree: an agent, a relay, or the root.
/// Pure.
class FenceTable {
public:
    /// Begins a generation and forgets the one before.
    /// \param ranks  how many ranks are below this node; a fence is complete here when all have
    ///               arrived
    void begin(std::uint64_t generation, std::uint32_t ranks);
    std::uint64_t generation() const { return generation_; }

    /// What becomes of an arrival.
    struct Arrival {
        enum class Kind {
            pending,   ///< other ranks are missing
            complete,  ///< all ranks below have arrived; `sum` is their sum
            failed,    ///< the fence had failed before: `fenced` says why
            twice,     ///< the peer has arrived before, or for more ranks than there are: a mistake
            too_much,  ///< limit of open fences: the caller ends this one with `fenced`
        };
        Kind kind = Kind::pending;
        Fence sum;
        Fenced fenced;
    };
    /// \param fence  must be of this table's generation
    Arrival arrive(PeerId peer, Fence fence);
    using Key = std::pair<std::string, std::uint64_t>;  ///< name and round
    /// Takes back the peer's arrivals at fences that are not complete here. \return which
    std::vector<Key> retract(PeerId peer);

    /// Ends a fence; if it failed, later arrivals at it fail too. `fenced` without a name fails
    /// every fence of the generation, open or to come.
    /// \return the outcomes of the fences that were open, for the ranks at them
    std::vector<Fenced> end(const Fenced& fenced);

    /// \return the fences that wait here for ranks, and did so at the last call; none of the agents' own,
    ///         to which a rank comes without a worker
    std::vector<Key> waited();

    /// The oldest failure if the last end() has dropped it because there were too many.
    std::optional<Key> take_forgotten() { return std::exchange(forgotten_, std::nullopt); }

private:
    struct Open {
        std::map<PeerId, Fence> parts;
        std::size_t bytes = 0;  ///< size of the parts
        std::uint32_t ranks = 0;
        bool passed = false;  ///< complete here; the parts are gone
        bool waits = false;   ///< for long enough that waited() has seen it
    };
    Fenced failed(const Key& key, std::string why) const;
    void remember_failure(const Key& key, const std::string& why);

    std::uint64_t generation_ = 0;
    std::uint32_t ranks_ = 0;
    std::map<Key, Open> open_;
    std::size_t open_bytes_ = 0;
    std::map<Key, std::string> failed_;
    std::deque<Key> failed_order_;  ///< oldest first; only so many are remembered
    std::optional<Key> forgotten_;
    std::optional<std::string> all_failed_;
};

}  // namespace dtrun
