#pragma once

#include "base/result.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/sent_frames.h"

#include <cstdint>
#include <functional>
#include <string_view>

namespace dtrun::embedded {

/// What a member and its daemon say to each other of ranks, over whatever connections there are: each frame arrives
/// once.
///
/// Thread: guarded by the connection's lock.
class MemberSession {
public:
    /// For Enter.
    bool was_let_in() const { return was_let_in_; }
    std::uint64_t heard() const { return heard_.last(); }

    /// To be sent by who takes unsent() next.
    void say(const Bytes& frame);
    void opened();  ///< another connection, over which nothing has been said
    Result<void> on_heard(const Heard& heard);
    /// Errc: invalid_input, and those of `handle`, which is given each frame once
    Result<void> on_numbered(std::string_view payload,
                             const std::function<Result<void>(const FrameView&)>& handle);
    /// Frames that are to be sent over this connection, once.
    Bytes take_unsent();

private:
    SentFrames sent_;
    HeardFrames heard_;
    bool is_open_ = false;  ///< the daemon has said what it has heard
    bool was_let_in_ = false;
    Bytes unsent_;
    bool owes_heard_ = false;
};

}  // namespace dtrun::embedded
