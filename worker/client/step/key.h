#pragma once

#include "worker/client/connect/credentials.h"
#include "worker/client/connect/launchers.h"
#include "worker/client/connect/munge.h"
#include "worker/client/connect/outcome.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace dtrun::embedded {

/// Where rank 0 of a step serves.
struct StepAddress {
    std::string node;  ///< as Slurm calls it
    std::uint16_t port = 0;
};

/// How the ranks of a step recognise each other. Nothing that Slurm tells them is secret, so either
/// rank 0 makes a secret, which MUNGE carries to processes of the same user, or all of them read it
/// from a file.
///
/// Who connects is greeted with a record, and authentication as in docs/PROTOCOL.md follows:
///
///   server -> client   "dtrn"  u16 version  u16 n  credential[n]           n is 0 with a file
///
/// The credential holds the secret, and only our user's processes can have MUNGE open it. It is made
/// once, and may be seen by anybody, any number of times. The job id under both proofs names the
/// node and the port that the client has dialled, so that who listens elsewhere cannot pass the two
/// on to each other.
class StepKey {
public:
    static constexpr std::size_t kGreetingBytes = 8;  ///< without the credential
    static constexpr std::size_t kCredentialBytesMax = 4'096;
    /// Where rank 0 may listen: the same for all ranks, different ones for different steps.
    static constexpr std::size_t kPorts = 4;
    using Ports = std::array<std::uint16_t, kPorts>;

    /// Finds out which way the ranks have. Does not connect to other hosts.
    /// Failures: no_launcher (neither libmunge nor a file), closed (munged), invalid (the file)
    static Outcome<StepKey> find(const SlurmStep& step);

    const Ports& ports() const { return ports_; }

    /// Rank 0, once: makes the secret. \return the greeting. Failures: closed (munged)
    Outcome<std::string> make_greeting();
    /// Reads a greeting. \return how many bytes of credential follow. Failures: refused
    static Outcome<std::size_t> credential_bytes(std::string_view greeting);
    /// The others: learns the secret. Failures: refused (not of our user), closed (munged)
    Outcome<void> take_credential(const std::string& credential);
    /// Once the secret is known.
    ClientCredentials credentials_at(const StepAddress& address) const;

private:
    explicit StepKey(const SlurmStep& step);

    std::string name_;  ///< of the step, among all that may use the same port
    Ports ports_{};
    std::optional<Munge> munge_;
    Secret secret_;
};

}  // namespace dtrun::embedded
