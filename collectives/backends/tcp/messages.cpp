#include "collectives/backends/tcp/messages.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace dtrun::collectives::over_tcp {
namespace {

/// What one direction of a connection moves before the others have their turn.
constexpr std::size_t kTurnBytes = 256UL << 10;

}  // namespace

/// Messages that were started together.
class TcpMessages::Batch final : public Pending {
public:
    Batch(TcpMessages& messages, std::vector<std::unique_ptr<Message>> batch, Failed failed)
        : messages_(messages), batch_(std::move(batch)), failed_(std::move(failed)) {}
    ~Batch() override { static_cast<void>(wait()); }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    void poll() override {
        if (done_) return;
        if (const auto moved = messages_.advance(); !moved) end(moved.error());
    }

    Result<void> wait() override {
        for (int tries = 0; !done_;) {
            const auto moved = messages_.advance();
            if (!moved) {
                end(moved.error());
            } else if (is_done()) {
                end(std::nullopt);
            } else if (*moved) {
                tries = 0;
            } else if (++tries >= messages_.mesh_.tries()) {
                tries = 0;
                if (auto waited = messages_.wait(); !waited) end(waited.error());
            }
        }
        return result_;
    }

private:
    bool is_done() const {
        return std::ranges::all_of(batch_, [](const auto& one) { return one->is_done(); });
    }
    void end(const std::optional<Error>& error) {
        done_ = true;
        if (error) result_ = std::unexpected(failed_(*error));
        messages_.forget(batch_);
        batch_.clear();
    }

    TcpMessages& messages_;
    std::vector<std::unique_ptr<Message>> batch_;
    Failed failed_;
    bool done_ = false;
    Result<void> result_;
};

std::uint64_t TcpMessages::kind_of(std::uint64_t call, std::uint64_t number) {
    std::uint64_t kind = call * 0x9e3779b97f4a7c15ULL ^ number * 0xc2b2ae3d27d4eb4fULL;
    kind = (kind ^ kind >> 33) * 0xff51afd7ed558ccdULL;
    return kind ^ kind >> 33;
}

Result<std::unique_ptr<Pending>> TcpMessages::start(std::span<const Send> sends,
                                                    std::span<const Receive> receives,
                                                    std::uint64_t call, Failed failed) {
    std::vector<std::unique_ptr<Message>> batch;
    batch.reserve(sends.size() + receives.size());
    const auto add = [&](std::uint32_t peer, std::uint64_t number, void* data, std::size_t bytes) {
        batch.push_back(std::make_unique<Message>(Message{
            {kind_of(call, number), bytes}, static_cast<std::byte*>(data), peer, call, number}));
        if (peers_[peer].is_idle()) active_.push_back(peer);
        return batch.back().get();
    };
    Result<void> begun;
    for (const Receive& one : receives) {
        Peer& peer = peers_[one.peer];
        peer.receives.push_back(add(one.peer, peer.received++, one.data, one.bytes));
        if (begun) begun = mesh_.begin(one.peer);
    }
    for (const Send& one : sends) {
        Peer& peer = peers_[one.peer];
        peer.sends.push_back(add(one.peer, peer.sent++, const_cast<void*>(one.data), one.bytes));
        if (begun) begun = mesh_.begin(one.peer);
    }
    if (!begun) {
        forget(batch);
        return std::unexpected(failed(begun.error()));
    }
    auto pending = std::make_unique<Batch>(*this, std::move(batch), std::move(failed));
    pending->poll();
    return pending;
}

Result<bool> TcpMessages::advance() {
    bool any = false;
    const auto is_open = [this](std::uint32_t peer) { return mesh_.connected(peer); };
    if (!std::ranges::all_of(active_, is_open)) mesh_.let_in();
    for (std::size_t i = 0; i < active_.size(); ++i) {
        const std::uint32_t peer = active_[i];
        if (!mesh_.connected(peer)) {
            if (auto advanced = mesh_.advance(peer); !advanced)
                return std::unexpected(advanced.error());
            if (!mesh_.connected(peer)) continue;
        }
        const auto sent = send_some(peer);
        if (!sent) return sent;
        const auto come = receive_some(peer);
        if (!come) return come;
        any = any || *sent || *come;
    }
    std::erase_if(active_, [this](std::uint32_t peer) { return peers_[peer].is_idle(); });
    return any;
}

Result<bool> TcpMessages::send_some(std::uint32_t to) {
    std::deque<Message*>& queue = peers_[to].sends;
    std::size_t moved = 0;
    while (!queue.empty() && moved < kTurnBytes) {
        Message& message = *queue.front();
        const std::size_t of_header = std::min(message.moved, sizeof(Header));
        const std::size_t of_data = message.moved - of_header;
        const std::array parts{
            iovec{reinterpret_cast<std::byte*>(&message.header) + of_header,
                  sizeof(Header) - of_header},
            iovec{message.data + of_data,
                  std::min<std::size_t>(message.header.bytes - of_data, kTurnBytes)}};
        const auto sent = mesh_.send(to, parts);
        if (!sent) {
            mesh_.broke(to);
            return std::unexpected(sent.error());
        }
        if (*sent == 0) break;
        message.moved += *sent;
        moved += *sent;
        if (message.is_done()) queue.pop_front();
    }
    return moved > 0;
}

Result<bool> TcpMessages::receive_some(std::uint32_t from) {
    Peer& peer = peers_[from];
    std::size_t moved = 0;
    while (!peer.receives.empty() && moved < kTurnBytes) {
        Message& message = *peer.receives.front();
        if (message.differs) break;
        const bool begins = message.moved < sizeof(Header);
        void* const to = begins ? reinterpret_cast<std::byte*>(&peer.heard) + message.moved
                                : message.data + (message.moved - sizeof(Header));
        const std::size_t wanted = begins ? sizeof(Header) - message.moved
                                          : sizeof(Header) + message.header.bytes - message.moved;
        const auto come = mesh_.receive(from, to, wanted);
        if (!come) {
            mesh_.broke(from);
            return std::unexpected(come.error());
        }
        if (*come == 0) break;
        message.moved += *come;
        moved += *come;
        if (begins && message.moved == sizeof(Header))
            if (auto looked = look_at_header(from, message); !looked)
                return std::unexpected(looked.error());
        if (message.is_done()) peer.receives.pop_front();
    }
    return moved > 0;
}

Result<void> TcpMessages::look_at_header(std::uint32_t from, Message& message) {
    const Header& heard = peers_[from].heard;
    const std::uint32_t name = mesh_.address_book().name_of(from);
    if (heard.kind == message.header.kind) {
        if (heard.bytes == message.header.bytes) return {};
        return fail(Errc::internal, "rank {} has sent {} B where this one receives {} B", name,
                    heard.bytes, message.header.bytes);
    }
    const std::uint32_t own = mesh_.address_book().name_of(mesh_.address_book().rank());
    if (message.call != 0 && heard.kind == kind_of(0, message.number))
        return fail(Errc::denied,
                    "ranks disagree: rank {} has sent a message of {} B before an operation of all "
                    "ranks, and rank {} does not receive it before that",
                    name, heard.bytes, own);
    if (message.call == 0)
        return fail(Errc::denied,
                    "ranks disagree: rank {} is in an operation of all ranks, and has not sent the "
                    "message of {} B that rank {} receives before that",
                    name, message.header.bytes, own);
    // Both are in operations of all ranks, but not in the same: the watchdog will say so.
    message.differs = true;
    return {};
}

Result<void> TcpMessages::wait() {
    std::vector<pollfd> waits;
    for (const std::uint32_t number : active_) {
        const Peer& peer = peers_[number];
        if (!mesh_.connected(number)) {
            mesh_.add_to(waits, number);
            continue;
        }
        short events = 0;
        if (!peer.sends.empty()) events |= POLLOUT;
        if (!peer.receives.empty()) events |= peer.receives.front()->differs ? POLLRDHUP : POLLIN;
        waits.push_back({mesh_.socket(number).fd(), events, 0});
    }
    if (auto waited = mesh_.wait(waits); !waited) return waited;
    for (const pollfd& one : waits)
        if ((one.revents & POLLRDHUP) != 0) return fail(Errc::closed, "it was in another call");
    return {};
}

void TcpMessages::forget(std::span<const std::unique_ptr<Message>> messages) noexcept {
    for (const auto& message : messages) {
        if (message->is_done()) continue;
        std::erase(peers_[message->peer].sends, message.get());
        std::erase(peers_[message->peer].receives, message.get());
    }
}

}  // namespace dtrun::collectives::over_tcp
