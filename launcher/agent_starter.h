#pragma once

#include "base/deadline.h"
#include "base/result.h"
#include "launcher/agent_file.h"
#include "launcher/channel.h"

#include <functional>
#include <string>

namespace dtrun {

/// The command that finds the agent on a host, or asks for it and stores it in the user's cache
/// directory. One line for any login shell; nothing of the job is in it.
std::string remote_agent_command(const AgentFile& agent);

/// Reads whole lines from a channel.
class LineReader {
public:
    explicit LineReader(Channel& channel) : channel_(channel) {}

    /// The next line without its end. Errc: closed (end of output), timed_out, cancelled,
    /// invalid_input (kBytesMax without a line)
    asio::awaitable<Result<std::string>> next(Deadline deadline);

    static constexpr std::size_t kBytesMax = 64u << 10;

private:
    Channel& channel_;
    std::string buffer_;
};

/// Waits until the agent behind `channel` is ready for its bootstrap, and copies it there first if it
/// asks for that. Copying takes as long as the link needs.
/// \param[in,out] deadline  for the agent's answer; renewed once it was copied
/// \param patience          how long a copy may stand still
/// Errc: timed_out, closed (with what the host said), not_found (no agent for its CPU), internal
asio::awaitable<Result<void>> greet_agent(Channel& channel, LineReader& lines, Deadline& deadline,
                                          std::chrono::milliseconds patience,
                                          std::function<void(const char*)> phase);

/// "exit status 1: sh: not found": how a command ended, with what it said on standard error.
std::string describe_ending(Channel& channel);

}  // namespace dtrun
