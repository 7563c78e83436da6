#pragma once

#include "base/loop/asio.h"
#include "launcher/transport/channel.h"
#include "rendezvous/wire/warm_messages.h"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::warm {

/// An agent that runs in a log-in which a holder keeps.
struct WarmAgent {
    std::unique_ptr<transport::Channel> channel;
    std::string seen_as;  ///< our address as the host sees it, numeric; empty: not known
};

/// What the holders of this user hold.
///
/// A holder that does not answer counts for nothing: whoever asks logs in himself.
///
/// Thread: the executor's.
class WarmHosts {
public:
    /// \param sockets  of holders, as holder_sockets() finds them
    /// \param keep     for how long hosts of which an agent is taken are to be held from then on; unset: as it is
    WarmHosts(asio::any_io_executor executor, std::vector<std::string> sockets,
              std::optional<std::chrono::milliseconds> keep);

    /// Whether nobody holds anything.
    bool is_empty() const { return sockets_.empty(); }
    /// Has an agent started on the host of this key. Waits for a log-in that goes on, or comes, for as long as the holder
    /// says that it does.
    /// \return nothing: no holder has such a host, or it is not there any more
    asio::awaitable<std::optional<WarmAgent>> take(std::string key);

private:
    asio::awaitable<void> look();
    asio::awaitable<std::optional<WarmAgent>> take_from(std::string path, std::string key);

    asio::any_io_executor executor_;
    std::vector<std::string> sockets_;
    std::optional<std::chrono::milliseconds> keep_;
    bool looking_ = false;
    bool looked_ = false;
    Timer found_;                                   ///< cancelled when they are known
    std::map<std::string, std::string> holder_of_;  ///< the socket of the holder of each key
};

}  // namespace dtrun::warm
