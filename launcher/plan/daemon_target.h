#pragma once

#include "base/ids.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"
#include "rendezvous/links/handshake.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::plan {

inline constexpr std::uint16_t kDaemonPort = 29'400;

/// A daemon, found and with what must be shown to it.
struct DaemonTarget {
    std::string text;                    ///< as the user wrote it
    std::string name;                    ///< for messages: "dtrun serve at HOST"
    std::vector<std::string> addresses;  ///< numeric; empty: `host` is not known yet
    std::uint16_t port = kDaemonPort;
    std::string job;
    Credentials credentials;
    std::optional<Secret> serve{};  ///< this command is that daemon, too: its own secret
    std::string host{};             ///< its name, or an address
    std::string secret_source{};    ///< whence the secret was read, for messages
};

/// "host", "host:port", "[::1]:port", "10.0.0.1:port". Errc: invalid_input
Result<std::pair<std::string, std::uint16_t>> parse_address(std::string_view text,
                                                            std::uint16_t default_port);

/// Reads the secret. A file must belong to us and be closed to others.
/// \param make  a missing default file is made, with random bytes
/// Errc: invalid_input, not_found, denied
Result<Secret> read_secret(const DaemonArgs& words, EnvironmentView environment, bool make);

/// Whether a name that nobody knows is an error, or may be known in a moment, as a pod's when it is ready.
enum class NameOf : std::uint8_t { daemon_there, daemon_to_come };

/// Looks names up. Errc: invalid_input, not_found, denied, unreachable
Result<DaemonTarget> find_daemon(const DaemonArgs& words, EnvironmentView environment,
                                 NameOf name = NameOf::daemon_there);
/// The same where the nodes of a job meet at one of them, which may be this one, and may come later.
Result<DaemonTarget> find_rendezvous(const JoinOptions& join, EnvironmentView environment);

}  // namespace dtrun::plan
