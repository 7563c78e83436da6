#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// How ranks of the fake library find each other and talk: TCP over loopback, between threads or
/// processes.
namespace fake {

/// Something went wrong with rank `rank` (-1: with this one).
struct Broken : std::runtime_error {
    Broken(int with, const std::string& text) : std::runtime_error(text), rank(with) {}
    int rank;
};
/// The communicator was aborted.
struct Aborted {};

class Socket {
public:
    Socket() = default;
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Socket();

    static Socket listen();  ///< on loopback, at any port
    static Socket connect(std::uint16_t port);
    std::uint16_t port() const;
    int fd() const { return fd_; }
    void shut_down() const;

private:
    int fd_ = -1;
};

/// The next connection.
Socket accept_one(const Socket& listener, const std::atomic<bool>& aborted);
void write_all(const Socket& socket, const void* data, std::size_t bytes,
               const std::atomic<bool>& aborted);
void read_all(const Socket& socket, void* data, std::size_t bytes,
              const std::atomic<bool>& aborted);

/// What ncclUniqueId has in it.
struct RootAddress {
    char magic[8];
    std::uint64_t secret;
    std::uint16_t port;
};

/// What a rank tells the root, and the root all ranks.
struct RankAddress {
    std::uint64_t secret = 0;
    std::uint64_t host = 0;  ///< hash
    std::int32_t rank = 0;
    std::int32_t size = 0;
    std::int32_t device = 0;
    std::uint16_t port = 0;
};

/// A listening socket with a thread that tells all ranks of one id where the others are.
RootAddress start_root();

struct Outgoing {
    int peer;
    const std::byte* data;
    std::size_t bytes;
};
struct Incoming {
    int peer;
    std::byte* data;
    std::size_t bytes;
};

/// Connections of a rank with all others.
class Mesh {
public:
    /// Joins at `root`. Throws Broken, Aborted.
    Mesh(const RootAddress& root, RankAddress self, const std::atomic<bool>& aborted);

    int rank() const { return self_.rank; }
    int size() const { return self_.size; }
    const std::vector<RankAddress>& ranks() const { return ranks_; }

    /// All at once; those of a pair of ranks in order. Throws Broken, Aborted.
    void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                  const std::atomic<bool>& aborted);
    /// As if this process had died.
    void hang_up() const;

private:
    const RankAddress self_;
    std::vector<RankAddress> ranks_;
    std::vector<Socket> peers_;
};

}  // namespace fake
