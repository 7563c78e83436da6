#pragma once

#include "base/loop/asio.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/sealing.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string_view>

namespace dtrun {

/// What is to be sent over a connection and was not taken by its socket: frames, in their order, each
/// from bytes, from bytes that other connections send as well, or from a pipe. Encrypts what is
/// encrypted right before it is sent. Tells when it is too much; never waits.
///
/// Thread: the socket's. Lifetime: `socket` outlives it.
class SendQueue {
public:
    static constexpr std::size_t kFullBytes = 8u << 20;
    static constexpr std::size_t kUnaskedBytesMax = 128u << 20;

    /// \param seal   of our direction, if it is encrypted
    /// \param taken  called each time the socket has taken some bytes
    SendQueue(StreamSocket& socket, std::optional<Seal> seal, std::function<void()> taken);
    SendQueue(const SendQueue&) = delete;
    SendQueue& operator=(const SendQueue&) = delete;

    void add(Bytes frame);
    /// The end of a frame whose beginning the socket has taken already, when nothing else was queued.
    void add_rest(FrameType type, Bytes rest);
    /// Frames that are added so in a row become one entry, as long as it is small.
    void add_to_batch(FrameType type, std::string_view payload);
    void add(FrameType type, std::string_view payload, SharedBytes rest);
    /// \param pipe  must hold that many bytes, and nobody may read it until `sent` is called
    void add_from_pipe(Bytes header, int pipe, std::size_t bytes, std::function<void()> sent);

    enum class Progress {
        done,     ///< it is empty
        blocked,  ///< the socket takes no more now
        broken    ///< and will not
    };
    Progress write();
    /// Drops everything.
    void clear();
    /// The same, and nothing more is to be added.
    void give_up();

    bool is_broken() const { return broken_; }
    bool is_sealed() const { return seal_.has_value(); }
    std::size_t size() const { return items_.size(); }  ///< entries
    bool empty() const { return items_.empty(); }
    std::size_t bytes() const { return bytes_; }
    bool is_full() const { return bytes_ > kFullBytes; }
    /// More than kUnaskedBytesMax waits that the peer has not asked for.
    bool is_over_limit() const { return unasked_bytes_ > kUnaskedBytesMax; }
    /// Bytes that the socket has ever taken.
    std::uint64_t taken_bytes() const { return taken_bytes_; }

private:
    /// One entry: `bytes`, then `rest`, then `pipe_bytes` bytes from the pipe.
    struct Item {
        Bytes bytes{};
        SharedBytes rest{};
        std::size_t offset = 0;  ///< bytes of `bytes` and `rest` already sent
        bool asked = false;      ///< not counted in unasked_bytes_
        bool sealed = false;     ///< `bytes` are encrypted and hold everything
        int pipe = -1;
        std::size_t pipe_bytes = 0;
        std::function<void()> sent{};

        std::size_t rest_bytes() const { return rest ? rest->size() : 0; }
        std::size_t unsent_bytes() const {
            return bytes.size() + rest_bytes() - offset + pipe_bytes;
        }
    };

    void push(Item item);
    void count(std::size_t bytes, bool asked);
    void take(const Item& item, std::size_t bytes);
    void seal(Item& item);
    Progress write_bytes(Item& item);
    Progress write_pipe(Item& item);

    StreamSocket& socket_;
    std::optional<Seal> seal_;
    const std::function<void()> taken_;
    std::list<Item> items_;  ///< an empty one takes no memory, as most of a head's are
    std::size_t bytes_ = 0;
    std::size_t unasked_bytes_ = 0;  ///< part of them that the peer has not asked for
    std::uint64_t taken_bytes_ = 0;
    bool writing_ = false;  ///< write() is on the stack
    bool broken_ = false;   ///< a write has failed: nothing more can be sent
};

}  // namespace dtrun
