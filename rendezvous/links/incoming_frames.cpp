#include "rendezvous/links/incoming_frames.h"

#include <algorithm>
#include <string_view>

namespace dtrun {
namespace {

constexpr std::size_t kBufferBytesUsual = 512u << 10;  // reached only by links with much traffic
constexpr int kRounds = 64;  // at least as many seconds of a link that only heartbeats use

}  // namespace

/// Keeps the beginning of an incomplete frame, at the front of a buffer that can hold all of it.
void IncomingFrames::make_room() {
    most_ = std::max(most_, used_);
    if (parsed_ > 0) {
        std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(parsed_),
                  buffer_.begin() + static_cast<std::ptrdiff_t>(used_), buffer_.begin());
        used_ -= parsed_;
        parsed_ = 0;
    }
    if (used_ == 0) give_back();
    std::size_t wanted = std::max(buffer_.size(), kRoomBytesMin);
    if (used_ >= FrameHeader::kBytes) {
        const auto header = decode_header({buffer_.data(), used_});
        if (header) wanted = std::max(wanted, FrameHeader::kBytes + header->payload_bytes);
        large_came_ |= header && FrameHeader::kBytes + header->payload_bytes > kBufferBytesUsual;
    }
    if (buffer_.size() < wanted) buffer_.resize(wanted);
}

/// Shrinks the buffer once no large frame has arrived lately, and further if it was nearly empty for long.
void IncomingFrames::give_back() {
    if (buffer_.size() > kBufferBytesUsual && !std::exchange(large_came_, false))
        resize(kBufferBytesUsual);
    if (++rounds_ < kRounds) return;
    rounds_ = 0;
    const std::size_t enough = std::max(4 * std::exchange(most_, 0), kRoomBytesMin);
    if (buffer_.size() > 2 * enough) resize(enough);
}

void IncomingFrames::resize(std::size_t bytes) {
    buffer_.resize(bytes);
    buffer_.shrink_to_fit();
    sealed_.shrink_to_fit();
}

std::span<char> IncomingFrames::room() {
    if (!seal_) return std::span(buffer_).subspan(used_);
    kept_ = sealed_.size();
    sealed_.resize_and_overwrite(std::max(kRoomBytesMin, buffer_.size()) + kept_,
                                 [](char*, std::size_t size) { return size; });
    return std::span(sealed_).subspan(kept_);
}

Result<bool> IncomingFrames::received(std::size_t bytes) {
    const std::size_t before = used_;
    const bool filled = bytes == (seal_ ? sealed_.size() - kept_ : buffer_.size() - used_);
    if (!seal_) {
        used_ += bytes;
    } else if (const auto opened = open(kept_ + bytes); !opened) {
        return std::unexpected(opened.error());
    }
    if (filled && buffer_.size() < kBufferBytesUsual) buffer_.resize(buffer_.size() * 4);
    return used_ > before;
}

/// Decrypts the first `bytes` bytes of sealed_ and appends them to buffer_.
Result<void> IncomingFrames::open(std::size_t bytes) {
    std::string_view sealed(sealed_.data(), bytes);
    const std::size_t size = buffer_.size();
    buffer_.resize(used_);
    const auto done = seal_->open(sealed, buffer_);
    used_ = buffer_.size();
    buffer_.resize(std::max(size, used_));
    const std::size_t left = sealed.size();
    sealed_.resize(bytes);
    sealed_.erase(0, bytes - left);
    return done;
}

Result<std::optional<FrameView>> IncomingFrames::next() {
    std::string_view bytes(buffer_.data() + parsed_, used_ - parsed_);
    const std::size_t before = bytes.size();
    auto frame = next_frame(bytes);
    parsed_ += before - bytes.size();
    return frame;
}

}  // namespace dtrun
