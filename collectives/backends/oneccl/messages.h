#pragma once

#include "collectives/backends/oneccl/api.h"
#include "collectives/group.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>

namespace dtrun::collectives::oneccl {

/// Most bytes of one call: sizes that do not fit into an int are untested.
inline constexpr std::size_t kChunkBytes = std::size_t{1} << 30;

/// Messages of a group that are under way.
///
/// oneCCL matches messages of a pair of ranks by the order in which they reach the network, but may
/// change that order; so it is given only one at a time for each peer and direction.
class OnecclMessages {
public:
    /// Messages that were started together.
    struct Batch {
        std::size_t left = 0;
    };
    using Post = std::function<Event(std::uint32_t peer, void* data, std::size_t bytes, bool send)>;
    using Test = std::function<bool(Event&)>;

    OnecclMessages(Post post, Test test) : post_(std::move(post)), test_(std::move(test)) {}
    OnecclMessages(const OnecclMessages&) = delete;
    OnecclMessages& operator=(const OnecclMessages&) = delete;

    /// All may throw what post and test throw.
    std::shared_ptr<Batch> start(std::span<const Send> sends, std::span<const Receive> receives);
    void advance();
    bool idle() const { return lanes_.empty(); }
    /// Forgets what is under way, which oneCCL may still work on.
    void abandon() noexcept { lanes_.clear(); }

private:
    struct Message {
        void* data;
        std::size_t bytes;
        std::shared_ptr<Batch> batch;
    };
    struct Lane {
        std::deque<Message> waiting;  ///< the first one is in oneCCL's hands
        Event event;
    };
    using Key = std::pair<std::uint32_t, bool>;  ///< peer, and whether it is sent to

    void add(Key key, void* data, std::size_t bytes, const std::shared_ptr<Batch>& batch);
    bool advance(const Key& key, Lane& lane);

    Post post_;
    Test test_;
    std::map<Key, Lane> lanes_;
};

}  // namespace dtrun::collectives::oneccl
