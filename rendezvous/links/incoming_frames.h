#pragma once

#include "base/result.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/sealing.h"

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

namespace dtrun {

/// What a connection has brought: bytes in, encrypted or not, frames out. Its memory grows with the
/// traffic, and to what a large frame needs for as long as such frames come, and is given back when less has come for a while.
///
/// Thread: one. Lifetime: a frame is valid until make_room().
class IncomingFrames {
public:
    static constexpr std::size_t kRoomBytesMin = 512;  ///< a head may have thousands of links

    /// \param seal  of the peer's direction, if it is encrypted
    explicit IncomingFrames(std::optional<Seal> seal) : seal_(std::move(seal)) {}

    /// Makes room for what comes next, at least for all of a frame whose beginning has come. To be
    /// called when next() finds no more.
    void make_room();
    /// Where the next bytes belong. Not to be called again before received().
    std::span<char> room();
    /// \param bytes  so many, at the beginning of room()
    /// \return whether they are of use: with encryption only a whole record is.
    /// Errc: invalid_input (encryption)
    Result<bool> received(std::size_t bytes);
    /// The next frame that has come, if any. Errc: invalid_input
    Result<std::optional<FrameView>> next();

private:
    Result<void> open(std::size_t bytes);
    void give_back();
    void resize(std::size_t bytes);

    std::optional<Seal> seal_;
    Bytes buffer_;             ///< frames; its size is the room
    std::size_t used_ = 0;     ///< bytes of buffer_ that have come
    std::size_t parsed_ = 0;   ///< bytes of them that next() has returned
    bool large_came_ = false;  ///< a frame has come lately that needed a larger buffer_
    std::size_t most_ = 0;     ///< that was in buffer_ at once, lately
    int rounds_ = 0;           ///< of make_room() with nothing left, since most_ is counted
    Bytes sealed_;             ///< encrypted bytes of an incomplete record, before room()
    std::size_t kept_ = 0;     ///< their number
};

}  // namespace dtrun
