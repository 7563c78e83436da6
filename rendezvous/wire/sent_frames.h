#pragma once

#include "rendezvous/wire/frame.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dtrun {

/// What one side has said in a conversation that outlives its connections, and the other may not have heard yet. See
/// NumberedFrame.
class SentFrames {
public:
    /// Numbers a frame, and keeps it. \return the frame to be sent, if there is a connection
    Bytes add(const Bytes& frame);
    /// The other side has all up to this one. Errc: invalid_input (more than was said)
    Result<void> heard(std::uint64_t number);
    /// What is to be sent on a new connection.
    std::vector<Bytes> unheard() const;
    bool empty() const { return kept_.empty(); }
    std::size_t size() const { return kept_.size(); }

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("last", m.last_), f("kept", m.kept_);
    }

private:
    std::uint64_t last_ = 0;         ///< number of the newest frame
    std::vector<std::string> kept_;  ///< the newest ones, in order
};

/// The other side of SentFrames: each frame once, in order.
class HeardFrames {
public:
    /// \param handle  is given the frame, unless it has come before
    /// Errc: invalid_input (one is missing, or it holds no frame), and those of `handle`
    Result<void> take(std::string_view numbered,
                      const std::function<Result<void>(const FrameView&)>& handle);
    std::uint64_t last() const { return last_; }

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("last", m.last_);
    }

private:
    std::uint64_t last_ = 0;
};

}  // namespace dtrun
