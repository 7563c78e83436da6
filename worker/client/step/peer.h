#pragma once

#include "base/numbered.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/handshake.h"
#include "worker/client/connect/private_fd.h"
#include "worker/client/step/send_queue.h"

#include <optional>
#include <span>
#include <string_view>

namespace dtrun::embedded {

/// One connection of a StepServer: its bytes, how far it has come, and whether it is read
/// (StepPeers decides). Never blocks.
class StepPeer {
public:
    enum class Stage {
        stranger,  ///< whose proof is awaited, and then its hello
        rank,
        helper
    };

    /// \param socket  is made non-blocking
    StepPeer(PrivateFd socket, PeerId id);

    const PeerId id;
    Stage stage = Stage::stranger;
    std::optional<Handshake> handshake;  ///< until it has proved itself
    Rank rank = kNoRank;
    bool leaving = false;    ///< it has said so
    bool writing = false;    ///< we are told when it can be sent more
    bool reading = true;     ///< we are told when it has said more
    bool held_back = false;  ///< it has said more than we have dealt with
    /// It is read although it is full: it may read nothing because it waits for us to read first.
    bool heard_though_full = false;

    PeerSendQueue out;  ///< what it is sent

    int fd() const { return socket_.get(); }
    bool is_stranger() const { return stage == Stage::stranger; }

    /// Takes what has come, by one recv(). \return whether the connection lives
    bool receive(std::span<char> scratch);
    /// What was received: a record of fixed size, or nothing yet. A view until the next receive().
    std::optional<std::string_view> take(std::size_t bytes);
    /// What was received: a frame, or nothing yet. A view until the next receive().
    /// Errc: invalid_input
    Result<std::optional<FrameView>> take_frame();

private:
    PrivateFd socket_;
    Bytes received_;
    std::size_t used_ = 0;  ///< of received_
};

}  // namespace dtrun::embedded
