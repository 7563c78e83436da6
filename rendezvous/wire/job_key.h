#pragma once

#include "base/ids.h"
#include "base/result.h"

#include <string_view>

namespace dtrun {

inline constexpr std::size_t kJobNameBytesMax = 4'096;

/// The id of a job on the wire, and the secret that its members prove to know; they follow from the
/// job's name and the daemon's secret (docs/PROTOCOL.md).
JobId job_id_of(std::string_view name);
Secret job_secret_of(const Secret& daemon, const JobId& job);

/// By which a program proves to the root of a job's tree that it may ask the store, and that alone: made of the job's
/// secret, of which it tells nothing. `id` stands in a job's place in the handshake.
struct StoreKey {
    JobId id{};
    Secret secret;
};
StoreKey store_key_of(const Secret& job);

/// Makes the daemon's secret from its file's text. Texts that look guessable are refused.
/// Errc: invalid_input
Result<Secret> secret_of_text(std::string_view text);
inline constexpr std::size_t kSecretTextBytesMax = 64u << 10;

}  // namespace dtrun
