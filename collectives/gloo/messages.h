#pragma once

#include "base/result.h"
#include "collectives/gloo/mesh.h"
#include "collectives/group.h"

#include <gloo/transport/unbound_buffer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace dtrun::collectives::over_gloo {

/// Asynchronous messages between pairs of ranks, over connections of their own.
///
/// Thread: one at a time, and abort() any.
class Messages {
public:
    Messages(Transport& transport, const GroupSpec& spec);
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;

    /// Called with the error of a message, in the caller's thread; what is returned instead.
    using Failed = std::function<Error(const Error&)>;

    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives, Failed failed);

    /// Everybody who waits returns, and nothing can be sent any more.
    void abort() noexcept;
    /// The same in the device's thread.
    void abort_connected() noexcept;
    /// Of abort(), by the caller's thread: the buffers of messages may go away.
    void close() noexcept { mesh_.close(); }
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
    };

    /// Messages of one pair of ranks are numbered in the order in which they are started. The size
    /// is part of the slot, for Gloo ends the process that gets more than it has room for.
    std::uint64_t next_slot(std::uint32_t peer, bool sends, std::size_t bytes);
    Message make(std::uint32_t peer, bool sends, const void* data, std::size_t bytes);
    Result<void> post(Message& message);
    Result<void> wait(Message& message);
    void forget(std::span<Message> batch) noexcept;
    void lost(std::uint32_t peer) noexcept;
    static void give_up(Message& message) noexcept;

    std::vector<std::uint64_t> sent_;      ///< by peer
    std::vector<std::uint64_t> received_;  ///< by peer

    std::mutex mutex_;
    std::set<Message*> posted_;
    std::vector<bool> gone_;  ///< by peer
    bool aborted_ = false;

    Mesh mesh_;  ///< last, for it ends the calls of lost()
};

}  // namespace dtrun::collectives::over_gloo
