#include "worker/stores/input_buffer.h"

#include <algorithm>
#include <cstring>

namespace dtrun::stores {
namespace {

constexpr std::size_t kRoomBytesMin = 1u << 10;
constexpr std::size_t kBytesMin = 2u << 10;
constexpr std::size_t kBytesKept = 128u << 10;

}  // namespace

std::span<char> InputBuffer::room() {
    const std::size_t kept = end_ - begin_;
    std::size_t wanted = size_;
    if (kept == 0 && size_ > kBytesKept) wanted = 0;
    if (wanted - std::min(kept, wanted) < kRoomBytesMin) wanted = std::max(kBytesMin, kept * 2);
    if (wanted != size_) {
        auto other = std::make_unique_for_overwrite<char[]>(wanted);
        if (kept > 0) std::memcpy(other.get(), memory_.get() + begin_, kept);
        memory_ = std::move(other);
        size_ = wanted;
    } else if (size_ - end_ < kRoomBytesMin && begin_ > 0) {
        std::memmove(memory_.get(), memory_.get() + begin_, kept);
    } else {
        return {memory_.get() + end_, size_ - end_};
    }
    begin_ = 0;
    end_ = kept;
    return {memory_.get() + end_, size_ - end_};
}

}  // namespace dtrun::stores
