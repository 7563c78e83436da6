#include "worker/client/step_peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <algorithm>
#include <array>
#include <cerrno>

namespace dtrun::embedded {
namespace {

constexpr std::size_t kPiecesMax = 64;  // in one sendmsg()

bool would_block() {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

StepPeer::StepPeer(PrivateFd socket, PeerId number) : id(number), socket_(std::move(socket)) {
    ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

bool StepPeer::receive(std::span<char> scratch) {
    received_.erase(0, std::exchange(used_, 0));
    if (received_.empty() && received_.capacity() > scratch.size())
        received_.shrink_to_fit();  // one large value must not keep its memory
    const ssize_t n = ::recv(socket_.get(), scratch.data(), scratch.size(), 0);
    if (n > 0) received_.append(scratch.data(), static_cast<std::size_t>(n));
    return n > 0 || (n < 0 && would_block());
}

std::optional<std::string_view> StepPeer::take(std::size_t bytes) {
    const std::string_view left = std::string_view(received_).substr(used_);
    if (left.size() < bytes) return std::nullopt;
    used_ += bytes;
    return left.substr(0, bytes);
}

Result<std::optional<FrameView>> StepPeer::take_frame() {
    std::string_view left = std::string_view(received_).substr(used_);
    auto frame = next_frame(left);
    used_ = received_.size() - left.size();
    return frame;
}

void StepPeer::queue(std::shared_ptr<const Bytes> bytes, bool asked) {
    unsent_bytes_ += bytes->size();
    if (!asked) unasked_bytes_ += bytes->size();
    unsent_.push_back({std::move(bytes), asked});
}

bool StepPeer::flush() {
    while (!unsent_.empty()) {
        std::array<iovec, kPiecesMax> pieces;
        std::size_t count = 0;
        for (; count < std::min(unsent_.size(), kPiecesMax); ++count) {
            const std::size_t skipped = count == 0 ? sent_ : 0;
            const Bytes& bytes = *unsent_[count].bytes;
            char* data = const_cast<char*>(bytes.data());  // iovec knows no const
            pieces[count] = {data + skipped, bytes.size() - skipped};
        }
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = count;
        const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
        if (n < 0) return would_block();
        unsent_bytes_ -= static_cast<std::size_t>(n);
        sent_ += static_cast<std::size_t>(n);
        sent_bytes_ += static_cast<std::uint64_t>(n);
        while (!unsent_.empty() && sent_ >= unsent_.front().bytes->size()) {
            const std::size_t size = unsent_.front().bytes->size();
            sent_ -= size;
            if (!unsent_.front().asked) unasked_bytes_ -= size;
            unsent_.pop_front();
        }
    }
    return true;
}

}  // namespace dtrun::embedded
