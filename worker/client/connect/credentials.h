#pragma once

#include "base/crypto.h"
#include "base/ids.h"
#include "worker/client/connect/outcome.h"

#include <string>
#include <string_view>

namespace dtrun::embedded {

/// What proves that a connection's two ends belong to a job.
struct ClientCredentials {
    JobId job{};
    Secret secret;  ///< the job's
};

/// The secret of DTRUN_SECRET_FILE or DTRUN_SECRET_FD, as docs/PROTOCOL.md makes it of what is in
/// there. A file must be ours or root's and nobody else's to read; a descriptor is closed.
/// \param file  empty: `fd`
/// Failures: invalid, naming the variable
Outcome<Secret> read_secret(const std::string& file, int fd = -1);

/// A secret that is made from another one, for the job `job`.
ClientCredentials derive_credentials(const Secret& from, std::string_view role, const JobId& job);

/// The first 16 bytes of the SHA-256 of `name`.
JobId job_id_of(std::string_view name);

}  // namespace dtrun::embedded
