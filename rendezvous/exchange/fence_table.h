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
inline constexpr const char* kTooManyBytes = "the ranks brought too many bytes; use the store";

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
    /// Takes back the peer's arrivals at fences that are not complete here.
    void retract(PeerId peer);

    /// Ends a fence; if it failed, later arrivals at it fail too. `fenced` without a name fails
    /// every fence of the generation, open or to come.
    /// \return the outcomes of the fences that were open, for the ranks at them
    std::vector<Fenced> end(const Fenced& fenced);

    using Key = std::pair<std::string, std::uint64_t>;  ///< name and round
    /// The oldest failure if the last end() has dropped it because there were too many.
    std::optional<Key> take_forgotten() { return std::exchange(forgotten_, std::nullopt); }

private:
    struct Open {
        std::map<PeerId, Fence> parts;
        std::size_t bytes = 0;  ///< size of the parts
        std::uint32_t ranks = 0;
        bool passed = false;  ///< complete here; the parts are gone
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
