#include "collectives/gloo/messages.h"

#include "collectives/quiet_thread.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace dtrun::collectives::over_gloo {
/// Messages that were started together.
class Messages::Batch final : public Pending {
public:
    Batch(Messages& messages, std::vector<Message> batch, Failed failed)
        : messages_(messages), batch_(std::move(batch)), failed_(std::move(failed)) {}
    ~Batch() override { static_cast<void>(wait()); }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    Result<void> begin() {
        const auto begun = messages_.begin(batch_);
        return begun ? begun : end(begun);
    }

    Result<void> wait() override {
        if (done_) return result_;
        Result<void> result;
        for (Message& message : batch_) {
            result = messages_.wait(message);
            if (!result) break;
        }
        return end(result);
    }

private:
    Result<void> end(const Result<void>& result) {
        done_ = true;
        if (!result) result_ = std::unexpected(failed_(result.error()));
        messages_.forget(batch_);
        batch_.clear();
        return result_;
    }

    Messages& messages_;
    std::vector<Message> batch_;
    Failed failed_;
    bool done_ = false;
    Result<void> result_;
};

Messages::Messages(Transport& transport, const GroupSpec& spec)
    : peers_(spec.size),
      mesh_(transport, spec, Mesh::Kind::messages, [this](std::uint32_t peer) { lost(peer); }) {
    mesh_.wait_forever();
}

Messages::~Messages() {
    close();
}

Result<std::unique_ptr<Pending>> Messages::start(std::span<const Send> sends,
                                                 std::span<const Receive> receives,
                                                 std::uint64_t call, Failed failed) {
    std::vector<Message> batch;
    batch.reserve(sends.size() + receives.size());
    for (const Receive& receive : receives)
        batch.push_back(make(receive.peer, false, receive.data, receive.bytes, call));
    for (const Send& send : sends)
        batch.push_back(make(send.peer, true, send.data, send.bytes, call));
    auto pending = std::make_unique<Batch>(*this, std::move(batch), std::move(failed));
    if (auto begun = pending->begin(); !begun) return std::unexpected(begun.error());
    return pending;
}

Messages::Message Messages::make(std::uint32_t peer, bool sends, const void* data,
                                 std::size_t bytes, std::uint64_t call) {
    // A slot's lower bits number the messages of a pair of ranks in the order in which they are
    // started. Its upper bits mix size and call, so that messages that differ do not match: Gloo
    // ends a process that receives more than it has room for.
    Peer& with = peers_[peer];
    const std::uint64_t number = sends ? with.sent++ : with.received++;
    const std::uint64_t kind = (bytes ^ (bytes >> 31) ^ call) * 0x9e3779b97f4a7c15ULL;
    constexpr std::uint64_t kNumber = 0xffffff;
    return {.peer = peer,
            .sends = sends,
            .slot = (kind & ~kNumber) | (number & kNumber),
            .buffer = mesh_.context().createUnboundBuffer(const_cast<void*>(data), bytes)};
}

Result<void> Messages::begin(std::span<Message> batch) {
    std::vector<std::uint32_t> missing;
    std::vector<Message*> ready;
    {
        const std::lock_guard lock(mutex_);
        for (Message& message : batch) {
            Peer& peer = peers_[message.peer];
            if (aborted_)
                message.refused = Error{Errc::cancelled, "aborted"};
            else if (peer.failed)
                message.refused = peer.failed;
            if (message.refused) continue;
            if (peer.connected) {
                ready.push_back(&message);
                continue;
            }
            peer.queue.push_back(&message);
            if (!peer.connecting.joinable() && std::ranges::count(missing, message.peer) == 0)
                missing.push_back(message.peer);
        }
    }
    for (Message* message : ready) post(*message);
    return missing.empty() ? Result<void>() : connect(missing);
}

Result<void> Messages::connect(std::span<const std::uint32_t> peers) {
    if (auto published = mesh_.publish(peers); !published) return published;
    try {
        for (const std::uint32_t peer : peers)
            peers_[peer].connecting = quiet_thread([this, peer] {
                connected(peer, mesh_.connect({&peer, 1}));
            });
        return {};
    } catch (const std::exception& error) {
        return fail(Errc::internal, "{}", error.what());
    }
}

void Messages::connected(std::uint32_t peer, const Result<void>& result) {
    std::vector<Message*> queue;
    {
        const std::lock_guard lock(mutex_);
        peers_[peer].connected = result.has_value();
        std::swap(queue, peers_[peer].queue);
        if (!result) peers_[peer].failed = result.error();
        if (!result)
            for (Message* message : queue) message->refused = result.error();
    }
    if (result)
        for (Message* message : queue) post(*message);
    else
        changed_.notify_all();
}

void Messages::post(Message& message) {
    std::optional<Error> refused;
    {
        const std::lock_guard lock(mutex_);
        if (aborted_)
            refused = Error{Errc::cancelled, "aborted"};
        else if (peers_[message.peer].gone)
            refused = Error{Errc::closed, "the connection was closed"};
        else
            posted_.insert(&message);
    }
    if (!refused) {
        try {
            NoPipeSignal guard;
            guard.failed();  // Gloo would not report it
            auto& pair = mesh_.pair(message.peer);
            if (message.sends)
                pair.send(message.buffer.get(), message.slot, 0, message.buffer->size);
            else
                pair.recv(message.buffer.get(), message.slot, 0, message.buffer->size);
        } catch (const std::exception& error) {
            refused = Error{Errc::closed, reason_of(error)};
        }
    }
    const std::lock_guard lock(mutex_);
    message.refused = std::move(refused);
    message.posted = !message.refused;
    changed_.notify_all();
}

Result<void> Messages::wait(Message& message) {
    using namespace std::chrono_literals;
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return message.posted || message.refused; });
        if (message.refused) {
            if (message.refused->code == Errc::closed) mesh_.broke(message.peer);
            return std::unexpected(*message.refused);
        }
    }
    auto& buffer = *message.buffer;
    try {
        bool done = message.sends ? buffer.waitSend(kForever) : buffer.waitRecv(kForever);
        // The wait was aborted, but the message may be complete; this throws if it is not.
        if (!done) done = message.sends ? buffer.waitSend(0ms) : buffer.waitRecv(0ms);
        if (done) return {};
    } catch (const std::exception& error) {
        mesh_.broke(message.peer);
        return fail(Errc::closed, "{}", reason_of(error));
    }
    mesh_.broke(message.peer);
    return fail(Errc::closed, "the connection was closed");
}

void Messages::forget(std::span<Message> batch) noexcept {
    const std::lock_guard lock(mutex_);
    for (Message& message : batch) {
        posted_.erase(&message);
        std::erase(peers_[message.peer].queue, &message);
    }
}

void Messages::give_up(Message& message) noexcept {
    if (message.sends)
        message.buffer->abortWaitSend();
    else
        message.buffer->abortWaitRecv();
}

void Messages::lost(std::uint32_t peer) noexcept {
    const std::lock_guard lock(mutex_);
    peers_[peer].gone = true;
    for (Message* message : posted_)
        if (message->peer == peer) give_up(*message);
}

void Messages::abort_connected() noexcept {
    {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
        for (Message* message : posted_) give_up(*message);
        for (Peer& peer : peers_)  // no thread may be left to post these
            for (Message* message : std::exchange(peer.queue, {}))
                message->refused = Error{Errc::cancelled, "aborted"};
    }
    changed_.notify_all();
    mesh_.shut_connections();
}

void Messages::abort() noexcept {
    abort_connected();
    mesh_.shut();
}

void Messages::close() noexcept {
    for (Peer& peer : peers_)
        if (peer.connecting.joinable()) peer.connecting.join();
    mesh_.close();
}

}  // namespace dtrun::collectives::over_gloo
