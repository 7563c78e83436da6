#include "rendezvous/links/send_queue.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <utility>

namespace dtrun {
namespace {

constexpr std::size_t kBatchBytes = 64u << 10;

/// Whether a frame does not count against kUnaskedBytesMax: requests and fences, their answers, and
/// output, which its receiver has granted.
bool is_asked_for(FrameType type) {
    switch (type) {
        case FrameType::request:
        case FrameType::reply:
        case FrameType::fence:
        case FrameType::fenced:
        case FrameType::output:
            return true;
        default:
            return false;
    }
}

}  // namespace

SendQueue::SendQueue(StreamSocket& socket, std::optional<Seal> seal, std::function<void()> taken)
    : socket_(socket), seal_(std::move(seal)), taken_(std::move(taken)) {}

void SendQueue::add(Bytes frame) {
    const auto type = static_cast<FrameType>(frame[4]);
    add_rest(type, std::move(frame));
}

void SendQueue::add_rest(FrameType type, Bytes rest) {
    Item item;
    item.asked = is_asked_for(type);
    item.bytes = std::move(rest);
    push(std::move(item));
}

void SendQueue::add_to_batch(FrameType type, std::string_view payload) {
    const bool asked = is_asked_for(type);
    const auto fits = [&](const Item& last) {
        return last.pipe < 0 && !last.sent && !last.sealed && !last.rest && last.asked == asked &&
               last.bytes.size() + payload.size() < kBatchBytes;
    };
    if (items_.empty() || !fits(items_.back())) {
        items_.emplace_back();
        items_.back().asked = asked;
    }
    Bytes& batch = items_.back().bytes;
    const auto header = encode_header({type, static_cast<std::uint32_t>(payload.size())});
    batch.append(header.data(), header.size());
    batch.append(payload);
    count(header.size() + payload.size(), asked);
}

void SendQueue::add(FrameType type, std::string_view payload, SharedBytes rest) {
    const auto bytes = static_cast<std::uint32_t>(payload.size() + rest->size());
    const auto header = encode_header({type, bytes});
    Item item;
    item.bytes.assign(header.data(), header.size());
    item.bytes.append(payload);
    item.rest = std::move(rest);
    item.asked = is_asked_for(type);
    push(std::move(item));
}

void SendQueue::add_from_pipe(Bytes header, int pipe, std::size_t bytes,
                              std::function<void()> sent) {
    Item item;
    item.bytes = std::move(header);
    item.asked = true;
    item.pipe = pipe;
    item.pipe_bytes = bytes;
    item.sent = std::move(sent);
    push(std::move(item));
}

void SendQueue::push(Item item) {
    const std::size_t bytes = item.unsent_bytes();
    const bool asked = item.asked;
    items_.push_back(std::move(item));
    count(bytes, asked);
}

void SendQueue::count(std::size_t bytes, bool asked) {
    bytes_ += bytes;
    if (!asked) unasked_bytes_ += bytes;
}

/// Counts bytes that the socket has taken of an item.
void SendQueue::take(const Item& item, std::size_t bytes) {
    bytes_ -= bytes;
    if (!item.asked) unasked_bytes_ -= bytes;
    taken_bytes_ += bytes;
    taken_();
}

void SendQueue::clear() {
    items_.clear();
    bytes_ = unasked_bytes_ = 0;
}

void SendQueue::give_up() {
    broken_ = true;
    clear();
}

SendQueue::Progress SendQueue::write() {
    if (broken_) return Progress::broken;
    if (writing_) return Progress::blocked;
    writing_ = true;
    Progress progress = Progress::done;
    while (!items_.empty()) {
        Item& item = items_.front();
        if (seal_ && !item.sealed) seal(item);
        progress = broken_ ? Progress::broken : write_bytes(item);
        if (progress == Progress::done) progress = write_pipe(item);
        if (progress != Progress::done) break;
        const std::function<void()> sent = std::move(item.sent);
        items_.pop_front();
        if (sent) sent();  // may queue more
    }
    writing_ = false;
    return progress;
}

/// Encrypts an item right before it is sent, so that its shared bytes stay shared as long as
/// possible. Bytes in a pipe must be read for this.
void SendQueue::seal(Item& item) {
    const std::size_t before = item.unsent_bytes();
    Bytes plain = std::move(item.bytes);
    if (item.rest) plain += *std::exchange(item.rest, nullptr);
    std::size_t at = plain.size();
    plain.resize(at + std::exchange(item.pipe_bytes, 0));
    const int pipe = std::exchange(item.pipe, -1);
    while (at < plain.size()) {
        const ssize_t n = ::read(pipe, plain.data() + at, plain.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;  // the caller promised more than the pipe held
        at += static_cast<std::size_t>(n);
    }
    broken_ |= at < plain.size();
    item.bytes.clear();
    seal_->seal(plain, item.bytes);
    item.sealed = true;
    count(item.unsent_bytes() - before, item.asked);
}

SendQueue::Progress SendQueue::write_bytes(Item& item) {
    while (item.offset < item.bytes.size() + item.rest_bytes()) {
        const std::size_t in_bytes = std::min(item.offset, item.bytes.size());
        const std::size_t in_rest = item.offset - in_bytes;
        iovec parts[2] = {{item.bytes.data() + in_bytes, item.bytes.size() - in_bytes}, {}};
        if (item.rest)
            parts[1] = {const_cast<char*>(item.rest->data()) + in_rest,
                        item.rest->size() - in_rest};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = item.rest ? 2 : 1;
        const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (item.pipe_bytes > 0 ? MSG_MORE : 0);
        const ssize_t n = ::sendmsg(socket_.native_handle(), &message, flags);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? Progress::blocked : Progress::broken;
        item.offset += static_cast<std::size_t>(n);
        take(item, static_cast<std::size_t>(n));
    }
    return Progress::done;
}

SendQueue::Progress SendQueue::write_pipe(Item& item) {
    while (item.pipe_bytes > 0) {
        const ssize_t n = ::splice(item.pipe, nullptr, socket_.native_handle(), nullptr,
                                   item.pipe_bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? Progress::blocked : Progress::broken;
        if (n == 0) return Progress::broken;  // the caller promised more than the pipe held
        item.pipe_bytes -= static_cast<std::size_t>(n);
        take(item, static_cast<std::size_t>(n));
    }
    return Progress::done;
}

}  // namespace dtrun
