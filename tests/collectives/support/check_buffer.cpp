#include "tests/collectives/support/check_buffer.h"

#include <algorithm>
#include <cstring>

namespace dtrun::collectives {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};

}  // namespace

CheckBuffer::CheckBuffer(const CheckOptions& options, const Bytes& content)
    : memory_(options.memory), bytes_(content.size()), front_(kGuard + options.misalign) {
    const std::size_t all = front_ + bytes_ + kGuard;
    Bytes host(all, kGuardByte);
    std::copy(content.begin(), content.end(), host.begin() + static_cast<long>(front_));
    if (memory_.allocate) {
        start_ = static_cast<std::byte*>(memory_.allocate(all));
        memory_.copy_in(start_, host.data(), all);
    } else {
        host_ = std::move(host);
        start_ = host_.data();
    }
}

CheckBuffer::~CheckBuffer() {
    if (memory_.release) memory_.release(start_);
}

Bytes CheckBuffer::content() const {
    const Bytes host = all();
    return {host.begin() + static_cast<long>(front_),
            host.begin() + static_cast<long>(front_ + bytes_)};
}

bool CheckBuffer::guards_untouched() const {
    const Bytes host = all();
    const auto guard = [](std::byte byte) { return byte == kGuardByte; };
    return std::all_of(host.begin(), host.begin() + static_cast<long>(front_), guard) &&
           std::all_of(host.end() - static_cast<long>(kGuard), host.end(), guard);
}

Bytes CheckBuffer::all() const {
    if (!memory_.copy_out) return host_;
    Bytes host(front_ + bytes_ + kGuard);
    memory_.copy_out(host.data(), start_, host.size());
    return host;
}

std::uint64_t hash_of(const Bytes& bytes) {
    std::uint64_t state = 0xcbf29ce484222325 + bytes.size();
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, &bytes[at], 8);
        state = (state ^ word) * 0x9e3779b97f4a7c15;
        state ^= state >> 29;
    }
    for (; at < bytes.size(); ++at)
        state = (state ^ std::to_integer<unsigned>(bytes[at])) * 1099511628211;
    return state;
}

}  // namespace dtrun::collectives
