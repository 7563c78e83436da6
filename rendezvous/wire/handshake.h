#pragma once

#include "rendezvous/wire/handshake_records.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace dtrun {

/// Finds a job's secret; nothing when there is no such job.
using SecretOf = std::function<std::optional<Secret>(const JobId&)>;

/// How a side says what is wrong with the other one.
struct HandshakeWords {
    std::string_view other = "the other side";
    std::string_view has_another_secret = "does not know the job's secret";
    std::string_view encryption = " (--encrypt)";  ///< behind what the other side wants
};

/// What a side brings along.
struct HandshakeTerms {
    std::uint16_t flags = 0;       ///< both sides need the same
    Nonce nonce = random_nonce();  ///< with kFlagEncrypt the public key of an exchange
    HandshakeWords words{};
    ProtocolVersions versions{};
};

/// One side of the handshake of handshake_records.h, without input or output: take_output() is to be sent whenever
/// there is some, also after an error, and what the other side says belongs into room(), until there is none. Who
/// carries the bytes has the deadline, and makes the keys of an encrypted connection (make_sealing()).
class Handshake {
public:
    /// The client's side.
    Handshake(const JobId& job, const Secret& secret, HandshakeTerms terms = {});
    /// The server's. An unknown job looks to the client like a wrong secret.
    explicit Handshake(SecretOf secret_of, HandshakeTerms terms = {});

    Bytes take_output() { return std::exchange(out_, {}); }
    /// Where the next bytes belong; empty once both sides have proved themselves.
    std::span<std::uint8_t> room();
    /// So many of them have come. After an error nothing helps any more. Errc: denied (wrong secret, other version or
    /// other choice of encryption; a server's refusal itself is not authenticated), invalid_input (a client that does
    /// not speak our protocol)
    Result<void> come(std::size_t bytes);

    bool is_server() const { return is_server_; }
    const JobId& job() const { return job_; }
    const Secret& secret() const { return secret_; }
    const Nonce& others_nonce() const { return others_nonce_; }
    const ClientRecord& client_record() const { return client_; }
    const ServerRecord& server_record() const { return server_; }

private:
    enum class Awaits { hello, proof, nothing };

    void say(std::span<const std::uint8_t> record);
    Result<void> hear_client();
    Result<void> hear_server();
    Result<void> hear_proof();
    Result<void> compare(std::uint16_t version, std::uint16_t flags) const;

    const bool is_server_;
    SecretOf secret_of_;
    HandshakeTerms terms_;
    JobId job_{};
    Secret secret_;
    ClientRecord client_{};
    ServerRecord server_{};
    Nonce others_nonce_{};
    Proofs proofs_;
    Sha256 shown_{};
    Awaits awaits_ = Awaits::hello;
    std::size_t come_ = 0;         ///< bytes of the record that comes
    std::optional<Error> failed_;  ///< once it has, for good
    Bytes out_;
};

}  // namespace dtrun
