#pragma once

#include "base/result.h"
#include "collectives/gloo/socket.h"
#include "collectives/gloo/transport.h"
#include "collectives/group.h"

#include <gloo/transport/pair.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrun::collectives::over_gloo {

/// Ranks to which every rank has a connection from the start: all in a small group, else those at
/// distances of 1, 2, 4, ... to both sides, which rings and trees need.
std::vector<std::uint32_t> neighbours(std::uint32_t rank, std::uint32_t size);
/// Groups up to this size have connections between all ranks.
inline constexpr std::uint32_t kMeshRanksMax = 8;
/// The timeout of what is not limited.
inline constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

/// Connections of one kind between this rank and others, made on demand: O(n log n) in all, where
/// Gloo itself makes n * n and lets every rank fetch all addresses.
///
/// Both ends must ask for a connection, in calls that belong together. Each puts the address at
/// which it listens for the other into the store; the pair of ranks is in the key.
///
/// Thread: one at a time, but one for each peer in connect(); shut() from any thread.
class Mesh {
public:
    enum class Kind {
        streams,   ///< the caller's thread reads and writes, as long as that takes
        messages,  ///< the device's thread does
    };

    /// \param ended  called in the device's thread. Of streams: the peer's group has failed, or was
    ///   aborted. Of messages: the peer has closed its end and all it had sent has been read; Gloo
    ///   tells nobody about a message that was half through then.
    Mesh(Transport& transport, const GroupSpec& spec, Kind kind,
         std::function<void(std::uint32_t peer)> ended);
    ~Mesh();
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;

    /// Lets peers come as late as they like from now on: operations have no timeout of their own.
    void wait_forever();
    /// Lets the peers connect; does not wait for them.
    Result<void> publish(std::span<const std::uint32_t> peers);
    /// Connects to those of `peers` that are not connected. Errc: timed_out (names who has not
    /// come), closed, cancelled (by shut()), invalid_input (a peer told why it cannot come)
    Result<void> connect(std::span<const std::uint32_t> peers);
    /// Tells the peers why this rank will not come.
    static void refuse(const GroupSpec& spec, const std::string& why);

    bool connected(std::uint32_t peer) const { return static_cast<bool>(ends_[peer].socket); }
    std::size_t connections() const;
    ::gloo::transport::Pair& pair(std::uint32_t peer) const { return *ends_[peer].pair; }
    const Socket& socket(std::uint32_t peer) const { return ends_[peer].socket; }
    ::gloo::transport::Context& context() const { return *context_; }

    /// Interrupts calls that use or await a connection, and prevents new connections. Peers' meshes
    /// of streams notice that, even while they wait for another rank.
    void shut() noexcept;
    /// The part of shut() that ends existing connections; may run in the device's thread.
    void shut_connections() noexcept;
    /// After shut(): closes the connections, so that the device's thread no longer touches buffers.
    void close() noexcept;

    /// Tells that a connection has failed; broken() returns the first one.
    void broke(std::uint32_t peer);
    std::optional<std::uint32_t> broken() const;
    /// Whether this is the largest message to the peer so far.
    bool grew(std::uint32_t peer, std::size_t bytes);

    /// The rank of the job, for messages to users.
    std::uint32_t name_of(std::uint32_t peer) const;

private:
    struct End {
        ::gloo::transport::Pair* pair = nullptr;  ///< of context_
        Socket socket;                            ///< once it is connected
        sockaddr_storage peer{};                  ///< where the peer listens
        bool accepts = false;                     ///< the peer connects
        std::size_t largest = 0;                  ///< of a message to it, in bytes
        std::unique_ptr<Transport::Watch> watch{};
    };

    static std::string key(const GroupSpec& spec, Kind kind, std::uint32_t from, std::uint32_t to);
    Result<void> fetch(std::span<const std::uint32_t> peers);
    Result<std::vector<std::string>> await(const std::vector<std::string>& keys,
                                           std::span<const std::uint32_t> peers);
    Error not_come(const std::vector<std::string>& keys, std::span<const std::uint32_t> peers);
    Result<void> connect_one(std::uint32_t peer);
    Result<void> take_sockets(std::span<const std::uint32_t> peers);
    Result<void> make_stream(std::uint32_t peer);
    void watch(std::uint32_t peer);
    static void close(::gloo::transport::Pair& pair) noexcept;

    GroupSpec spec_;
    Kind kind_;
    Transport& transport_;
    std::function<void(std::uint32_t)> ended_;
    std::shared_ptr<::gloo::transport::Context> context_;
    /// Guards against shut(). Never held while waiting for the device's thread, which may lock it.
    mutable std::mutex mutex_;
    std::optional<std::uint32_t> broken_;
    std::atomic<bool> shut_ = false;
    std::vector<End> ends_;
};

}  // namespace dtrun::collectives::over_gloo
