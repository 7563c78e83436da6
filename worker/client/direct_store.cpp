#include "worker/client/direct_store.h"

#include "base/crypto.h"
#include "base/ids.h"
#include "worker/client/connect/handshake.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::seconds kGreetingLimit{1};
/// A connection on which nothing is acknowledged for so long is broken. Others may have to wait for a process that is
/// stopped, by a debugger for instance; here the agent is another way.
constexpr std::chrono::milliseconds kSilenceLimit{30'000};

/// Why a wait ends that has come to nothing so far. Failures: timed_out, cancelled
Outcome<void> may_go_on(const WaitContext& context) {
    if (context.give_up && context.give_up()) return failure(DTRUN_CANCELLED, "interrupted");
    if (context.over()) return failure(DTRUN_TIMED_OUT, "timed out");
    return {};
}

}  // namespace

DirectStore::DirectStore() : client_(random_id()) {}

void DirectStore::offer(const Welcome& welcome) {
    const bool is_known = !socket_name_.empty() || !port_.address.empty();
    if (is_known || (welcome.store_socket.empty() && welcome.store_port.address.empty())) return;
    socket_name_ = welcome.store_socket;
    port_ = welcome.store_port;
    is_offered_.store(true, std::memory_order_release);
}

bool DirectStore::begin(const WaitContext& context) {
    if (!is_offered() || is_taken_.exchange(true, std::memory_order_acquire)) return false;
    const bool is_connected = socket_.fd() >= 0 || (++begun_ > kWorthIt && connect(context));
    if (is_connected && is_offered()) return true;
    end();
    return false;
}

/// \return whether it is welcome there
bool DirectStore::connect(const WaitContext& context) {
    // An interrupt is for the request, which may go another way; and that needs time, half of what it has.
    const Deadline begun = now();
    Deadline until = begun + kGreetingLimit;
    if (context.deadline != Deadline::max())
        until = std::min(until, begun + (context.deadline - begun) / 2);
    const WaitContext soon{until, {}};
    auto connected = dial(soon);
    if (connected) {
        const std::lock_guard lock(mutex_);
        if (!is_closed_) socket_ = std::move(*connected);
    }
    Hello hello;
    hello.pid = ::getpid();
    if (socket_.fd() >= 0 && send(encode(hello), soon)) {
        const auto answer = next_frame(soon);
        if (answer && answer->type == FrameType::welcome) return true;
    }
    give_up();
    return false;
}

Outcome<FrameSocket> DirectStore::dial(const WaitContext& context) const {
    if (!socket_name_.empty()) return FrameSocket::connect_unix(socket_name_);
    ClientCredentials key;
    if (port_.id.size() != key.job.size() || port_.secret.size() != Secret::kBytes)
        return failure(DTRUN_INVALID, "no key of the store");
    std::ranges::copy(as_bytes(port_.id), key.job.begin());
    key.secret = Secret(as_bytes(port_.secret).first<Secret::kBytes>());
    auto socket = FrameSocket::connect_tcp(port_.address, std::to_string(port_.port), context);
    if (!socket) return socket;
    keep_watch(socket->fd());
    const auto silence_ms = static_cast<unsigned>(kSilenceLimit.count());
    (void)::setsockopt(socket->fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
    if (auto proved = authenticate(*socket, key, context); !proved)
        return std::unexpected(proved.error());
    return socket;
}

Outcome<void> DirectStore::send(std::string_view frame, const WaitContext& context) {
    for (;;) {
        auto sent = socket_.send_some(frame, context.slice());
        if (sent && !frame.empty()) sent = may_go_on(context);
        if (!sent || frame.empty()) return sent;
    }
}

Outcome<FrameView> DirectStore::next_frame(const WaitContext& context) {
    for (;;) {
        const auto frame = socket_.next();
        if (frame && *frame) return **frame;
        const auto got = frame ? socket_.receive(context.slice()) : FrameSocket::Got::end;
        if (got == FrameSocket::Got::bytes) continue;
        if (got == FrameSocket::Got::end)
            return failure(DTRUN_CLOSED, "the store has closed the connection");
        if (auto goes_on = may_go_on(context); !goes_on) return std::unexpected(goes_on.error());
    }
}

Outcome<ReplyView> DirectStore::receive(const WaitContext& context) {
    for (;;) {
        const auto frame = next_frame(context);
        if (!frame) return std::unexpected(frame.error());
        const auto reply = decode_reply(frame->payload);
        if (frame->type != FrameType::reply || !reply)
            return failure(DTRUN_CLOSED, "the store says what it should not");
        if (reply->header.id == last_id_) return *reply;  // others were given up
    }
}

void DirectStore::give_up() {
    is_offered_.store(false, std::memory_order_release);
    socket_.shut_down();
}

void DirectStore::close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    is_offered_.store(false, std::memory_order_release);
    socket_.shut_down();
}

}  // namespace dtrun::embedded
