#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// Flags of `dtrun run` that show the job to others.
Rows<ParsedRun> show_flags();

/// "PORT", "ADDRESS:PORT", "[ADDRESS]:PORT" or "ADDRESS", which means any free port. Without an address it is the
/// loopback, which only this machine reaches. Errc: invalid_input (the address is not numeric)
Result<plan::ListenAddress> parse_listen_address(std::string_view value);

}  // namespace dtrun::cli
