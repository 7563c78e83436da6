#include "collectives/gloo/messages.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace dtrun::collectives::over_gloo {
namespace {

/// Messages take as long as they take.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

}  // namespace

/// Messages that were started together.
class Messages::Batch final : public Pending {
public:
    Batch(Messages& messages, std::vector<Message> batch, Failed failed)
        : messages_(messages), batch_(std::move(batch)), failed_(std::move(failed)) {
        for (const Message& message : batch_) peers_.push_back(message.peer);
        std::ranges::sort(peers_);
        const auto rest = std::ranges::unique(peers_);
        peers_.erase(rest.begin(), rest.end());
    }
    ~Batch() override { static_cast<void>(wait()); }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    /// Posts all, unless a peer must come first: wait() does it then. (If this waited, ranks that
    /// start messages in a ring would wait for each other.)
    Result<void> begin() {
        if (auto published = messages_.mesh_.publish(peers_); !published) return end(published);
        for (const std::uint32_t peer : peers_)
            if (!messages_.mesh_.connected(peer)) return {};
        const auto done = post();
        return done ? done : end(done);
    }

    Result<void> wait() override {
        if (done_) return result_;
        auto result = messages_.mesh_.connect(peers_);
        if (result && !posted_) result = post();
        for (Message& message : batch_) {
            if (!result) break;
            result = messages_.wait(message);
        }
        return end(result);
    }

private:
    Result<void> post() {
        NoPipeSignal guard;
        guard.failed();  // of which Gloo would not tell
        posted_ = true;
        for (Message& message : batch_)
            if (auto done = messages_.post(message); !done) return done;
        return {};
    }

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
    std::vector<std::uint32_t> peers_;
    bool posted_ = false;
    bool done_ = false;
    Result<void> result_;
};

Messages::Messages(Transport& transport, const GroupSpec& spec)
    : sent_(spec.size),
      received_(spec.size),
      gone_(spec.size),
      mesh_(transport, spec, Mesh::Kind::messages, [this](std::uint32_t peer) { lost(peer); }) {}

Result<std::unique_ptr<Pending>> Messages::start(std::span<const Send> sends,
                                                 std::span<const Receive> receives, Failed failed) {
    std::vector<Message> batch;
    batch.reserve(sends.size() + receives.size());
    for (const Receive& receive : receives)
        batch.push_back(make(receive.peer, false, receive.data, receive.bytes));
    for (const Send& send : sends) batch.push_back(make(send.peer, true, send.data, send.bytes));
    auto pending = std::make_unique<Batch>(*this, std::move(batch), std::move(failed));
    if (auto begun = pending->begin(); !begun) return std::unexpected(begun.error());
    return pending;
}

Messages::Message Messages::make(std::uint32_t peer, bool sends, const void* data,
                                 std::size_t bytes) {
    return {.peer = peer,
            .sends = sends,
            .slot = next_slot(peer, sends, bytes),
            .buffer = mesh_.context().createUnboundBuffer(const_cast<void*>(data), bytes)};
}

std::uint64_t Messages::next_slot(std::uint32_t peer, bool sends, std::size_t bytes) {
    const std::uint64_t number = (sends ? sent_ : received_)[peer]++;
    // Bits 0..23 tell messages that are under way together apart, whatever the sizes.
    const std::uint64_t size = (bytes ^ (bytes >> 31)) * 0x9e3779b97f4a7c15ULL;
    return (size & ~0xffffffULL) ^ (number & 0xffffffULL);
}

Result<void> Messages::post(Message& message) {
    {
        const std::lock_guard lock(mutex_);
        if (aborted_) return fail(Errc::cancelled, "aborted");
        if (gone_[message.peer]) return fail(Errc::closed, "the connection was closed");
        posted_.insert(&message);
    }
    try {
        auto& pair = mesh_.pair(message.peer);
        if (message.sends)
            pair.send(message.buffer.get(), message.slot, 0, message.buffer->size);
        else
            pair.recv(message.buffer.get(), message.slot, 0, message.buffer->size);
        return {};
    } catch (const std::exception& error) {
        mesh_.broke(message.peer);
        return fail(Errc::closed, "{}", reason_of(error));
    }
}

Result<void> Messages::wait(Message& message) {
    using namespace std::chrono_literals;
    auto& buffer = *message.buffer;
    try {
        bool done = message.sends ? buffer.waitSend(kForever) : buffer.waitRecv(kForever);
        // It was given up, and may be complete all the same. This throws if it is not.
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
    for (Message& message : batch) posted_.erase(&message);
}

void Messages::give_up(Message& message) noexcept {
    if (message.sends)
        message.buffer->abortWaitSend();
    else
        message.buffer->abortWaitRecv();
}

void Messages::lost(std::uint32_t peer) noexcept {
    const std::lock_guard lock(mutex_);
    gone_[peer] = true;
    for (Message* message : posted_)
        if (message->peer == peer) give_up(*message);
}

void Messages::abort_connected() noexcept {
    {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
        for (Message* message : posted_) give_up(*message);
    }
    mesh_.shut_connections();
}

void Messages::abort() noexcept {
    abort_connected();
    mesh_.shut();
}

}  // namespace dtrun::collectives::over_gloo
