#pragma once

#include "base/result.h"
#include "collectives/gloo/mesh.h"
#include "collectives/group.h"

#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace dtrun::collectives::over_gloo {

/// Asynchronous messages between pairs of ranks, over connections of their own.
///
/// A connection is made when the first message to or from a peer is started, in a thread for that
/// peer: the others' messages do not wait for it, nor does the caller, for the peer may have to
/// hear from this rank before it comes.
///
/// Thread: one at a time; abort() from any thread.
class Messages {
public:
    Messages(Transport& transport, const GroupSpec& spec);
    ~Messages();
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;

    /// Turns a message's error into the one to return; called in the caller's thread.
    using Failed = std::function<Error(const Error&)>;

    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives, std::uint64_t call,
                                           Failed failed);

    /// Makes all waits return, and prevents new messages.
    void abort() noexcept;
    /// The part of abort() that may run in the device's thread.
    void abort_connected() noexcept;
    /// After abort(), in the caller's thread: closes connections, so that buffers may be freed.
    void close() noexcept;
    std::optional<std::uint32_t> broken() const { return mesh_.broken(); }
    std::size_t connections() const { return mesh_.connections(); }

private:
    class Batch;

    /// One buffer for one message: Gloo mixes up the senders of several receives of a buffer.
    struct Message {
        std::uint32_t peer = 0;
        bool sends = false;
        std::uint64_t slot = 0;
        std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
        bool posted = false;             ///< handed to Gloo
        std::optional<Error> refused{};  ///< why it never will be
    };

    struct Peer {
        bool connected = false;
        bool gone = false;              ///< it has closed its end
        std::optional<Error> failed{};  ///< why it never will be connected
        std::uint64_t sent = 0;         ///< messages to it that were started
        std::uint64_t received = 0;     ///< and from it
        std::vector<Message*> queue{};  ///< messages that wait for the connection
        std::thread connecting{};
    };

    Message make(std::uint32_t peer, bool sends, const void* data, std::size_t bytes,
                 std::uint64_t call);
    Result<void> begin(std::span<Message> batch);
    Result<void> connect(std::span<const std::uint32_t> peers);
    void connected(std::uint32_t peer, const Result<void>& result);
    void post(Message& message);
    Result<void> wait(Message& message);
    void forget(std::span<Message> batch) noexcept;
    void lost(std::uint32_t peer) noexcept;
    static void give_up(Message& message) noexcept;

    std::mutex mutex_;
    std::condition_variable changed_;  ///< messages have been posted or refused
    std::vector<Peer> peers_;
    std::set<Message*> posted_;
    bool aborted_ = false;

    Mesh mesh_;  ///< last: its destructor ends the calls of lost()
};

}  // namespace dtrun::collectives::over_gloo
