#pragma once

#include "worker/client/connect/credentials.h"
#include "worker/client/connect/frame_socket.h"
#include "worker/client/connect/launchers.h"
#include "worker/client/connect/outcome.h"

#include <string>

namespace dtrun::embedded {

/// Reads the daemon's secret. A file must be ours or root's and nobody else's to read; a descriptor
/// is closed.
/// Failures: invalid
Outcome<ClientCredentials> read_credentials(const DaemonAddress& address);

/// Connects and proves, both ways, without encryption (docs/PROTOCOL.md). A daemon that is not
/// there or goes away is tried again until the context ends.
/// \param known  the daemon has proved itself before: whoever fails to now is another program at its
///               address, and is tried again
/// Failures: timed_out, refused (another secret, job or protocol; not if it is known), cancelled
Outcome<FrameSocket> dial_daemon(const DaemonAddress& address, const ClientCredentials& credentials,
                                 bool known, const WaitContext& context);

/// Numeric address of our end.
std::string local_address(const FrameSocket& socket);

}  // namespace dtrun::embedded
