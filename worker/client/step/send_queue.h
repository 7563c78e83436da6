#pragma once

#include "rendezvous/wire/frame.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

namespace dtrun::embedded {

/// What a peer has not been sent yet, in order, and how much that is.
///
/// Thread: the server's.
class PeerSendQueue {
public:
    /// \param asked  the answer to a request, of which there are as many as we read
    void add(std::shared_ptr<const Bytes> bytes, bool asked);
    /// Sends what can be sent at once. \return whether the connection lives
    bool flush(int socket);

    bool empty() const { return chunks_.empty(); }
    /// The peer has so much to read that we do not handle its next requests.
    bool is_full() const { return bytes_ > kFullBytes; }
    /// The peer reads nothing, and what it did not ask for piles up.
    bool is_stuck() const { return unasked_bytes_ > kUnaskedBytesMax; }
    /// Bytes that have been sent.
    std::uint64_t sent_bytes() const { return sent_bytes_; }

private:
    struct Chunk {
        std::shared_ptr<const Bytes> bytes;
        bool asked = false;
    };
    static constexpr std::size_t kFullBytes = 16u << 20;
    static constexpr std::size_t kUnaskedBytesMax = 128u << 20;

    std::deque<Chunk> chunks_;
    std::size_t sent_ = 0;  ///< of pieces_.front()
    std::size_t bytes_ = 0;
    std::size_t unasked_bytes_ = 0;  ///< of whole pieces
    std::uint64_t sent_bytes_ = 0;
};

}  // namespace dtrun::embedded
