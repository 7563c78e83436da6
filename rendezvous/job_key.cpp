#include "rendezvous/job_key.h"

#include "base/crypto.h"

#include <algorithm>
#include <string>

namespace dtrun {
namespace {

std::span<const std::uint8_t> as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

JobId job_id_of(std::string_view name) {
    const Sha256 digest = sha256("dtrun job " + std::string(name));
    JobId id;
    std::copy_n(digest.begin(), id.size(), id.begin());
    return id;
}

Secret job_secret_of(const Secret& daemon, const JobId& job) {
    return Secret(hmac_sha256(daemon.bytes(), {as_bytes("dtrun job secret"), job}));
}

}  // namespace dtrun
