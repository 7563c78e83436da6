#include "worker/client/step/send_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace dtrun::embedded {
namespace {

constexpr std::size_t kPiecesMax = 64;  // in one sendmsg()

}  // namespace

void PeerSendQueue::add(std::shared_ptr<const Bytes> bytes, bool asked) {
    bytes_ += bytes->size();
    if (!asked) unasked_bytes_ += bytes->size();
    chunks_.push_back({std::move(bytes), asked});
}

bool PeerSendQueue::flush(int socket) {
    while (!chunks_.empty()) {
        std::array<iovec, kPiecesMax> pieces;
        std::size_t count = 0;
        for (; count < std::min(chunks_.size(), kPiecesMax); ++count) {
            const std::size_t skipped = count == 0 ? sent_ : 0;
            const Bytes& bytes = *chunks_[count].bytes;
            char* data = const_cast<char*>(bytes.data());  // iovec knows no const
            pieces[count] = {data + skipped, bytes.size() - skipped};
        }
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = count;
        const ssize_t n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        bytes_ -= static_cast<std::size_t>(n);
        sent_ += static_cast<std::size_t>(n);
        sent_bytes_ += static_cast<std::uint64_t>(n);
        while (!chunks_.empty() && sent_ >= chunks_.front().bytes->size()) {
            const std::size_t size = chunks_.front().bytes->size();
            sent_ -= size;
            if (!chunks_.front().asked) unasked_bytes_ -= size;
            chunks_.pop_front();
        }
    }
    return true;
}

}  // namespace dtrun::embedded
