#pragma once

#include "launcher/channel.h"

#include <memory>
#include <string>
#include <vector>

namespace dtrun {

/// Starts a program on this machine, in a session of its own so that the terminal's signals do not
/// reach it. \param env  "NAME=value"; the whole environment
/// Errc: not_found, denied, internal
Result<std::unique_ptr<Channel>> start_process(asio::any_io_executor executor,
                                               const std::vector<std::string>& argv,
                                               const std::vector<std::string>& env);

}  // namespace dtrun
