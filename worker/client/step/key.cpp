#include "worker/client/step/key.h"

#include "base/crypto.h"
#include "rendezvous/wire/handshake_records.h"

#include <strings.h>
#include <utility>

namespace dtrun::embedded {
namespace {

// Above the ports of services, and below those that Linux hands out by itself (from 32768).
constexpr unsigned kPortMin = 20'000;
constexpr unsigned kPortCount = 12'000;

constexpr const char* kOtherWays =
    "; start the program with dtrun, or name a daemon in DTRUN_SERVE, or put a secret into a file "
    "that all hosts see and name it in DTRUN_SECRET_FILE";

}  // namespace

StepKey::StepKey(const SlurmStep& step)
    : name_(fmt::format("dtrun step {}\n{}\n", step.cluster, step.id)) {
    const Sha256 digest = sha256(name_);
    for (std::size_t i = 0; i < kPorts; ++i) {
        const unsigned number = unsigned{digest[2 * i]} << 8 | digest[2 * i + 1];
        ports_[i] = static_cast<std::uint16_t>(kPortMin + number % kPortCount);
    }
}

Outcome<StepKey> StepKey::find(const SlurmStep& step) {
    StepKey key(step);
    if (!step.secret_file.empty()) {
        const auto secret = read_secret(step.secret_file);
        if (!secret) return std::unexpected(secret.error());
        key.secret_ = *secret;
        return key;
    }
    auto munge = Munge::open(step.munge_socket);
    if (!munge) return failure(munge.error().code, "{}{}", munge.error().text, kOtherWays);
    key.munge_ = std::move(*munge);
    return key;
}

Outcome<std::string> StepKey::make_greeting() {
    std::string credential;
    if (munge_) {
        secret_ = Secret::random();
        auto made = munge_->encode(as_text(secret_.bytes()));
        if (!made) return std::unexpected(made.error());
        credential = std::move(*made);
    }
    if (credential.size() > kCredentialBytesMax)
        return failure(DTRUN_INTERNAL, "MUNGE: a credential of {} bytes", credential.size());
    const auto bytes = static_cast<std::uint16_t>(credential.size());
    return std::string(as_text(encode_preamble({kProtocolVersion, bytes}))) + credential;
}

Outcome<std::size_t> StepKey::credential_bytes(std::string_view greeting) {
    const auto preamble = decode_preamble(as_bytes(greeting));
    if (!preamble) return failure(DTRUN_REFUSED, "it does not speak dtrun's protocol");
    if (!ProtocolVersions{}.knows(preamble->version))
        return failure(DTRUN_REFUSED, "it speaks another version of dtrun's protocol");
    const std::size_t bytes = preamble->flags;
    if (bytes > kCredentialBytesMax) return failure(DTRUN_REFUSED, "it is no rank of a step");
    return bytes;
}

Outcome<void> StepKey::take_credential(const std::string& credential) {
    if (credential.empty() != !munge_)
        return failure(DTRUN_REFUSED,
                       "it {} DTRUN_SECRET_FILE, and we {}: all ranks must have it, or none",
                       munge_ ? "has" : "has no", munge_ ? "have not" : "have");
    if (!munge_) return {};
    auto payload = munge_->decode(credential);
    if (!payload) return std::unexpected(payload.error());
    if (payload->size() != Secret::kBytes)
        return failure(DTRUN_REFUSED, "it sends a credential of something else");
    secret_ = Secret(as_bytes(*payload).first<Secret::kBytes>());
    ::explicit_bzero(payload->data(), payload->size());
    return {};
}

ClientCredentials StepKey::credentials_at(const StepAddress& address) const {
    const JobId job = job_id_of(fmt::format("{}{}\n{}", name_, address.node, address.port));
    return derive_credentials(secret_, "dtrun step secret", job);
}

}  // namespace dtrun::embedded
