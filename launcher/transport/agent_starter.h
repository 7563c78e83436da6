#pragma once

#include "base/loop/deadline.h"
#include "base/result.h"
#include "launcher/transport/agent_copies.h"
#include "launcher/transport/agent_file.h"
#include "launcher/transport/channel.h"

#include <functional>
#include <string>
#include <string_view>

namespace dtrun::transport {

// What a host says before its agent speaks frames, each to the end of a line. It may not begin one: a login
// shell prints what it likes, as the title of a terminal.
inline constexpr std::string_view kAgentReady = "dtrun-agent ";
inline constexpr std::string_view kAgentFound = "dtrun-agent-found";
inline constexpr std::string_view kAgentWanted = "dtrun-agent-wanted ";
inline constexpr std::string_view kAgentStored = "dtrun-agent-stored";
inline constexpr std::string_view kAgentReceives = "dtrun-agent-receives ";
inline constexpr std::string_view kAgentComes = "dtrun-agent-comes";
inline constexpr std::string_view kAgentFetched = "dtrun-agent-fetched";
inline constexpr std::string_view kAgentHandsOn = "dtrun-agent-hands-on ";
inline constexpr std::string_view kAgentSend = "dtrun-agent-send";
inline constexpr std::string_view kAgentFailed = "dtrun-agent-failed ";

/// The command that finds the agent on a host, or asks for it and stores it in the user's cache
/// directory. One line for any login shell; nothing of the job is in it.
/// \param job     its id, in hexadecimal: hosts that lack the agent find out by it which of them have one home
/// \param option  of the agent; empty: none
std::string remote_agent_command(const AgentFile& agent, const std::string& job,
                                 std::string_view option = "");

/// The command that has the agent's program end what another agent of the job has left on its host.
/// \param build_ids  of agents that may be there, one of which is for its CPU
/// \param job        its id, in hexadecimal
/// \param whose      number of the agent that is gone
std::string remote_sweep_command(const std::vector<std::string>& build_ids, const std::string& job,
                                 std::uint64_t whose);

/// Reads whole lines from a channel.
class LineReader {
public:
    explicit LineReader(Channel& channel) : channel_(channel) {}

    /// The next line without its end. Errc: closed (end of output, without a message, or the connection's),
    /// timed_out, cancelled, internal (kBytesMax without a line)
    asio::awaitable<Result<std::string>> next(Deadline deadline);

    /// What has come of a line that has not ended.
    const std::string& unfinished() const { return buffer_; }

    static constexpr std::size_t kBytesMax = 64u << 10;

private:
    Channel& channel_;
    std::string buffer_;
};

// Of what greet_agent() says that is being done: what other hosts do, and this machine has nothing to do with.
inline constexpr const char* kAwaitsCopy = "waiting for its copy";
inline constexpr const char* kFetchesCopy = "copying the agent from another host";
inline bool is_left_to_hosts(std::string_view phase) {
    return phase == kAwaitsCopy || phase == kFetchesCopy;
}

/// Waits until the agent behind `channel` is ready for its configuration, and copies it there first if it
/// asks for that. Copying takes as long as the link needs.
/// \param copies    outlives the call
/// \param[in,out] deadline  for the agent's answer; renewed once it was copied
/// \param patience          how long a copy may stand still
/// Errc: timed_out, closed (it hung up before it knew who we are), denied, unreachable, internal (no agent for
///       its CPU, or with what the host said)
asio::awaitable<Result<void>> greet_agent(Channel& channel, LineReader& lines, AgentCopies& copies,
                                          Deadline& deadline, std::chrono::milliseconds patience,
                                          std::function<void(const char*)> phase);

/// Whether the agent whose first line this is speaks our protocol. Errc: internal
Result<void> check_ready(std::string_view line);

/// All of `bytes`, which may take as long as the link needs.
/// Errc: timed_out (nothing went through for as long as `patience`), cancelled, closed
asio::awaitable<Result<void>> send_in_pieces(Channel& channel, std::string_view bytes,
                                             std::chrono::milliseconds patience);

/// "exit status 1: sh: not found": how a command ended, with what it said on standard error. One that
/// lives on without output is waited for a second.
asio::awaitable<std::string> describe_ending(Channel& channel);

}  // namespace dtrun::transport
