#include "worker/client/step/peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <cerrno>

namespace dtrun::embedded {
namespace {

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

}  // namespace dtrun::embedded
