#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/warm_messages.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::warm {

/// A connection to a holder, over which frames go.
///
/// Thread: the executor's; at most one receive() and one send() at a time.
class HolderConnection {
public:
    explicit HolderConnection(Unix::socket socket) : socket_(std::move(socket)) {}

    /// Errc: closed (nobody listens there), denied (it is somebody else's), internal
    static Result<HolderConnection> open(asio::any_io_executor executor, const std::string& path);

    /// Errc: closed, timed_out, cancelled
    asio::awaitable<Result<void>> send(Bytes frame, Deadline deadline);
    /// The next message, which must be an M. Errc: closed, timed_out, cancelled, invalid_input
    template <class M>
    asio::awaitable<Result<M>> receive(Deadline deadline);
    void close() noexcept;

private:
    asio::awaitable<Result<std::string>> receive_payload(FrameType type, Deadline deadline);

    Unix::socket socket_;
    std::string received_;
};

/// What one of several holders has said.
struct HolderAnswer {
    std::string path;           ///< of its socket
    Result<WarmAnswer> answer;  ///< Errc: those of HolderConnection
};

/// Asks all of them at once for what has one answer, so that one that does not answer makes no other wait.
/// \return one for each path, in their order
asio::awaitable<std::vector<HolderAnswer>> ask_holders(std::vector<std::string> paths,
                                                       WarmRequest request, Deadline deadline);

}  // namespace dtrun::warm
