#pragma once

#include "base/numbered.h"
#include "rendezvous/exchange.h"
#include "rendezvous/frame.h"
#include "rendezvous/handshake_records.h"
#include "worker/client/private_fd.h"

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace dtrun::embedded {

/// One connection of a StepServer: its bytes, and how far it has come. Never blocks.
class StepPeer {
public:
    enum class Stage {
        greeted,     ///< a stranger, whose record is awaited
        challenged,  ///< a stranger, whose proof is awaited
        known,       ///< one of ours, whose hello is awaited
        rank,
        helper
    };

    /// \param socket  is made non-blocking
    StepPeer(PrivateFd socket, PeerId id);

    const PeerId id;
    Stage stage = Stage::greeted;
    Proofs proofs;  ///< challenged: what it has to show, and ours for when it has
    Rank rank = kNoRank;
    bool leaving = false;    ///< it has said so
    bool writing = false;    ///< we are told when it can be sent more
    bool reading = true;     ///< we are told when it has said more
    bool held_back = false;  ///< it has said more than we have dealt with
    /// It is read although it is full: it may read nothing because it waits for us to read first.
    bool heard_though_full = false;

    int fd() const { return socket_.get(); }
    bool is_stranger() const { return stage < Stage::rank; }

    /// Takes what has come, by one recv(). \return whether the connection lives
    bool receive(std::span<char> scratch);
    /// What was received: a record of fixed size, or nothing yet. A view until the next receive().
    std::optional<std::string_view> take(std::size_t bytes);
    /// What was received: a frame, or nothing yet. A view until the next receive().
    /// Errc: invalid_input
    Result<std::optional<FrameView>> take_frame();

    /// Sends when flush() is called.
    /// \param asked  the answer to a request, of which there are as many as we read
    void queue(std::shared_ptr<const Bytes> bytes, bool asked);
    /// Sends what can be sent at once. \return whether the connection lives
    bool flush();
    bool has_unsent() const { return !unsent_.empty(); }
    /// It has so much to read that we do not handle its next requests.
    bool is_full() const { return unsent_bytes_ > kFullBytes; }
    /// It reads nothing, and what it did not ask for piles up.
    bool is_stuck() const { return unasked_bytes_ > kUnaskedBytesMax; }
    /// Bytes that it has been sent.
    std::uint64_t sent_bytes() const { return sent_bytes_; }

private:
    struct Piece {
        std::shared_ptr<const Bytes> bytes;
        bool asked = false;
    };
    static constexpr std::size_t kFullBytes = 16u << 20;
    static constexpr std::size_t kUnaskedBytesMax = 128u << 20;

    PrivateFd socket_;
    Bytes received_;
    std::size_t used_ = 0;  ///< of received_
    std::deque<Piece> unsent_;
    std::size_t sent_ = 0;  ///< of unsent_.front()
    std::size_t unsent_bytes_ = 0;
    std::size_t unasked_bytes_ = 0;  ///< of whole pieces
    std::uint64_t sent_bytes_ = 0;
};

}  // namespace dtrun::embedded
