#pragma once

#include "base/result.h"
#include "collectives/backends/tcp/mesh.h"
#include "collectives/group.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dtrun::collectives::over_tcp {

/// Asynchronous messages between pairs of ranks, over connections of their own, which the first message to or
/// from a peer begins to make.
///
/// No thread is behind it: messages move while somebody waits for one of them, or polls.
///
/// Thread: one at a time.
class TcpMessages {
public:
    explicit TcpMessages(Mesh& mesh) : mesh_(mesh), peers_(mesh.address_book().size()) {}
    TcpMessages(const TcpMessages&) = delete;
    TcpMessages& operator=(const TcpMessages&) = delete;

    /// Turns a message's error into the one to return.
    using Failed = std::function<Error(const Error&)>;

    /// \param call  a number: messages of different ones do not match. 0: of no operation of all ranks
    /// Errc of what is started: also denied (a message of an operation of all ranks is expected and another
    /// one has come, or the other way round: the program of one of both ranks has another order)
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives, std::uint64_t call,
                                           Failed failed);

private:
    class Batch;

    struct Header {
        std::uint64_t kind = 0;  ///< mixed of call and number
        std::uint64_t bytes = 0;
    };
    /// A message with its header, part of which has been sent or has come.
    struct Message {
        Header header{};
        std::byte* data = nullptr;
        std::uint32_t peer = 0;
        std::uint64_t call = 0;
        std::uint64_t number = 0;  ///< among those to or from the peer
        std::size_t moved = 0;     ///< bytes of both
        bool differs = false;      ///< something else has come in its place
        bool is_done() const { return moved == sizeof(Header) + header.bytes && !differs; }
    };
    struct Peer {
        std::uint64_t sent = 0;        ///< messages to it that were started
        std::uint64_t received = 0;    ///< and from it
        std::deque<Message*> sends{};  ///< in the order in which they were started
        std::deque<Message*> receives{};
        Header heard{};  ///< of the message that comes
        bool is_idle() const { return sends.empty() && receives.empty(); }
    };

    static std::uint64_t kind_of(std::uint64_t call, std::uint64_t number);
    /// Moves what can be moved. \return whether anything was
    Result<bool> advance();
    Result<bool> send_some(std::uint32_t to);
    Result<bool> receive_some(std::uint32_t from);
    Result<void> look_at_header(std::uint32_t from, Message& message);
    Result<void> wait();
    void forget(std::span<const std::unique_ptr<Message>> messages) noexcept;

    Mesh& mesh_;
    std::vector<Peer> peers_;
    std::vector<std::uint32_t> active_;  ///< peers with messages under way
};

}  // namespace dtrun::collectives::over_tcp
