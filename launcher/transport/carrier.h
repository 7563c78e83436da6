#pragma once

#include <string_view>

namespace dtrun::transport {

/// carrier.py: a program for hosts that have Python, which receives the agent and passes it on while it comes.
extern const std::string_view kCarrier;

}  // namespace dtrun::transport
