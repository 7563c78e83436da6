#pragma once

#include "launcher/transport/channel.h"
#include "launcher/transport/ssh_session.h"

#include <memory>
#include <string>

namespace dtrun::transport {

/// A channel of libssh's, on which a command runs.
/// \param address  numeric, of the host
std::unique_ptr<Channel> make_ssh_channel(std::unique_ptr<SshSession> session, ssh_channel channel,
                                          std::string address);

}  // namespace dtrun::transport
