#pragma once

#include "rendezvous/exchange.h"
#include "rendezvous/exchange_messages.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun {

/// About how much entries take in a frame.
std::size_t entry_bytes(const std::vector<FenceEntry>& entries);
inline constexpr const char* kTooManyBytes = "the ranks brought too many bytes; use the store";

/// Arrivals at the fences of one generation, at one node of the tree: an agent, a relay, or the root.
/// Pure.
class FenceTable {
public:
    /// Forgets the generation before.
    /// \param ranks  below this node; a fence that all of them have reached is complete here
    void begin(std::uint64_t generation, std::uint32_t ranks);
    std::uint64_t generation() const { return generation_; }

    struct Outcome {
        enum class Kind {
            pending,   ///< others are missing
            complete,  ///< `sum` is everybody below
            failed,    ///< the fence had failed before: `fenced` says why
            twice,     ///< the port has arrived before, or for more ranks than there are: a mistake
            too_much,  ///< open fences hold too much: `fenced` fails this one, which is to be ended
        };
        Kind kind = Kind::pending;
        Fence sum;
        Fenced fenced;
    };
    /// \param fence  its generation is this table's
    Outcome arrive(PortId port, Fence fence);
    /// The port's arrivals did not happen, at fences that are not complete here.
    void retract(PortId port);

    /// How a fence ended; arrivals that come later are told the same if it failed. Without a name:
    /// every fence, open or to come, has failed.
    /// \return what ranks at the fences that were open are to be told
    std::vector<Fenced> end(const Fenced& fenced);

    using Key = std::pair<std::string, std::uint64_t>;  ///< name and round
    /// The failure that the last end() has made it forget, for there were too many.
    std::optional<Key> take_forgotten() { return std::exchange(forgotten_, std::nullopt); }

private:
    struct Open {
        std::map<PortId, Fence> parts;
        std::size_t bytes = 0;  ///< of the parts
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
