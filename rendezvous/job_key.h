#pragma once

#include "base/ids.h"
#include "base/result.h"

#include <string_view>

namespace dtrun {

/// How jobs of a daemon are told apart on the wire, and what their members prove to know; both follow
/// from the job's name and the daemon's secret (docs/PROTOCOL.md).
JobId job_id_of(std::string_view name);
Secret job_secret_of(const Secret& daemon, const JobId& job);

/// The daemon's secret, of what is in its file. What could be guessed is refused as far as it can be told.
/// Errc: invalid_input
Result<Secret> secret_of_text(std::string_view text);
inline constexpr std::size_t kSecretTextBytesMax = 64u << 10;

}  // namespace dtrun
