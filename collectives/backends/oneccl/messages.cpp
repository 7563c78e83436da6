#include "collectives/backends/oneccl/messages.h"

#include <algorithm>

namespace dtrun::collectives::oneccl {

std::shared_ptr<OnecclMessages::Batch> OnecclMessages::start(std::span<const Send> sends,
                                                             std::span<const Receive> receives) {
    auto batch = std::make_shared<Batch>();
    for (const Receive& receive : receives)
        add({receive.peer, false}, receive.data, receive.bytes, batch);
    // oneCCL takes a pointer to non-const, but does not write to what it sends.
    for (const Send& send : sends)
        add({send.peer, true}, const_cast<void*>(send.data), send.bytes, batch);
    return batch;
}

void OnecclMessages::add(Key key, void* data, std::size_t bytes,
                         const std::shared_ptr<Batch>& batch) {
    if (bytes == 0) return;
    Lane& lane = lanes_[key];
    const bool idle = lane.waiting.empty();
    for (std::size_t at = 0; at < bytes; at += kChunkBytes) {
        ++batch->left;
        lane.waiting.push_back(
            {static_cast<std::byte*>(data) + at, std::min(kChunkBytes, bytes - at), batch});
    }
    const Message& first = lane.waiting.front();
    if (idle) lane.event = post_(key.first, first.data, first.bytes, key.second);
}

void OnecclMessages::advance() {
    for (auto lane = lanes_.begin(); lane != lanes_.end();)
        lane = advance(lane->first, lane->second) ? lanes_.erase(lane) : std::next(lane);
}

/// \return whether nothing is left to do
bool OnecclMessages::advance(const Key& key, Lane& lane) {
    while (test_(lane.event)) {
        --lane.waiting.front().batch->left;
        lane.waiting.pop_front();
        if (lane.waiting.empty()) return true;
        const Message& next = lane.waiting.front();
        lane.event = post_(key.first, next.data, next.bytes, key.second);
    }
    return false;
}

}  // namespace dtrun::collectives::oneccl
