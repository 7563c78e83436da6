#pragma once

#include "launcher/transport/channel.h"
#include "launcher/warm/holder_client.h"

#include <memory>

namespace dtrun::warm {

/// The channel to an agent that a holder has started in a log-in which it keeps.
/// \param connection  over which the holder has said that the agent is taken
std::unique_ptr<transport::Channel> make_warm_channel(HolderConnection connection);

}  // namespace dtrun::warm
