#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/result.h"
#include "rendezvous/wire/start_messages.h"

#include <string>

namespace dtrun::agent {

/// The agent's standard input: tells who it is and what to run, and then stays open for as long as the
/// head, and whatever connects the two, is there.
///
/// Thread: the loop's.
class Lifeline {
public:
    Lifeline(asio::any_io_executor executor, Fd input);

    /// \param node  what the scheduler that starts all agents calls this host, else empty: it gives all of
    ///              them the same configuration, from which this takes what is this host's own
    /// Errc: closed, invalid_input
    asio::awaitable<Result<AgentConfig>> read_config(std::string node);

    /// Returns when the lifeline has ended. \return false: because it was cancelled
    asio::awaitable<bool> broken();

private:
    asio::awaitable<Result<std::string>> read_frame(FrameType type);
    asio::awaitable<Result<void>> find_own_host(AgentConfig& config, std::string node);

    asio::posix::stream_descriptor input_;
};

}  // namespace dtrun::agent
