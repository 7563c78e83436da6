#pragma once

#include "base/crypto.h"
#include "base/ids.h"
#include "base/result.h"
#include "collectives/backends/tcp/socket.h"
#include "rendezvous/wire/handshake_records.h"
#include "rendezvous/wire/sealing.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace dtrun::collectives::over_tcp {

// How a connection between two ranks begins: the handshake of rendezvous/wire/handshake_records.h, under a secret
// of the group, over sockets that do not block. Both sides' fresh numbers are in it, so that what was said once
// opens nothing again. In the place of the job's id stands what the connection is for.

/// What a connection is for. Each pair of ranks has at most one of each kind.
enum class ConnectionKind : std::uint32_t {
    streams = 1,   ///< of a collective operation: both ends are in the same call
    messages = 2,  ///< of start(): matched by number, as many under way as one likes
};

/// Whose connection it is, and what for.
struct ConnectRequest {
    ConnectionKind kind = ConnectionKind::streams;
    std::uint32_t from = 0;  ///< the rank that asks for it
    std::uint32_t to = 0;
    bool operator==(const ConnectRequest&) const = default;
};
JobId encode(const ConnectRequest& request);
/// \return nothing for what no rank says
std::optional<ConnectRequest> decode_connect_request(const JobId& id);

/// What the ranks of a group share, and strangers do not.
struct Terms {
    Secret secret{};
    bool encrypt = false;
};

/// Records of fixed sizes over a socket that does not block.
class Talk {
public:
    /// Adds what is to be sent.
    void say(std::span<const std::uint8_t> record) { out_.append(as_text(record)); }
    /// \return whether all of it was sent. Errc: closed
    Result<bool> flush(const Socket& socket);
    /// \return whether all of `record` has come. Errc: closed
    Result<bool> hear(const Socket& socket, std::span<std::uint8_t> record);
    bool has_to_send() const { return !out_.empty(); }

private:
    static std::string_view as_text(std::span<const std::uint8_t> bytes) {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    std::string out_;
    std::size_t heard_ = 0;  ///< bytes of the record that comes
};

/// The rank that asks for a connection.
class AskingSide {
public:
    AskingSide(const ConnectRequest& request, const Terms& terms);

    /// Goes on as far as that can be done at once. Errc: closed, denied (it is not a rank of this group, or wants
    /// other encryption)
    /// \return whether the other side has proved itself
    Result<bool> advance(const Socket& socket);
    bool has_to_send() const { return talk_.has_to_send(); }
    /// Once it has: the keys, if the connection is encrypted from here on.
    std::optional<Sealing> take_sealing() { return std::move(sealing_); }

private:
    Result<void> answer_hello();

    Terms terms_;
    std::optional<KeyExchange> exchange_;
    Talk talk_;
    ClientRecord ours_{};
    ServerRecord theirs_{};
    std::optional<Proofs> proofs_;  ///< once it has said hello
    Sha256 shown_{};
    std::optional<Sealing> sealing_;
};

/// The rank that is asked. Whoever asks proves himself first.
class AnsweringSide {
public:
    /// Errc: closed, denied (it is no rank of this group, or wants other encryption)
    /// \return whether the caller has proved himself, and was answered
    Result<bool> advance(const Socket& socket, const Terms& terms);
    bool has_to_send() const { return talk_.has_to_send(); }
    /// Once he has.
    const ConnectRequest& request() const { return request_; }
    std::optional<Sealing> take_sealing() { return std::move(sealing_); }

private:
    enum class State { hello, proof, done };
    Result<void> answer_hello(const Terms& terms);
    Result<void> answer_proof(const Socket& socket, const Terms& terms);

    State state_ = State::hello;
    std::optional<KeyExchange> exchange_;
    Talk talk_;
    ClientRecord theirs_{};
    ServerRecord ours_{};
    Sha256 shown_{};
    ConnectRequest request_;
    std::optional<Sealing> sealing_;
};

}  // namespace dtrun::collectives::over_tcp
