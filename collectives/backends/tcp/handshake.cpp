#include "collectives/backends/tcp/handshake.h"

#include <openssl/crypto.h>
#include <sys/uio.h>

#include <algorithm>

namespace dtrun::collectives::over_tcp {
namespace {

constexpr std::size_t kWords =
    4;  ///< of 4 bytes each in the place of a job's id; the last one is 0

std::uint16_t flags_of(const Terms& terms) {
    return terms.encrypt ? kFlagEncrypt : 0;
}

/// Makes this side's fresh number: with encryption it is the public key of an exchange.
Nonce fresh(std::optional<KeyExchange>& exchange, bool encrypt) {
    if (!encrypt) return random_nonce();
    // Ours is a copy in other people's processes, whom the system's configuration of OpenSSL is for.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
    exchange.emplace();
    return exchange->public_key();
}

}  // namespace

JobId encode(const ConnectRequest& request) {
    const std::array<std::uint32_t, kWords> words{static_cast<std::uint32_t>(request.kind),
                                                  request.from, request.to, 0};
    JobId id{};
    for (std::size_t i = 0; i < id.size(); ++i)
        id[i] = static_cast<std::uint8_t>(words[i / 4] >> (24 - 8 * (i % 4)));
    return id;
}

std::optional<ConnectRequest> decode_connect_request(const JobId& id) {
    std::array<std::uint32_t, kWords> words{};
    for (std::size_t i = 0; i < id.size(); ++i) words[i / 4] = words[i / 4] << 8 | id[i];
    const ConnectRequest request{static_cast<ConnectionKind>(words[0]), words[1], words[2]};
    if (request.kind != ConnectionKind::streams && request.kind != ConnectionKind::messages)
        return std::nullopt;
    if (words[3] != 0) return std::nullopt;
    return request;
}

Result<bool> Talk::flush(const Socket& socket) {
    if (out_.empty()) return true;
    const iovec part{out_.data(), out_.size()};
    const auto sent = socket.send({&part, 1});
    if (!sent) return std::unexpected(sent.error());
    out_.erase(0, *sent);
    return out_.empty();
}

Result<bool> Talk::hear(const Socket& socket, std::span<std::uint8_t> record) {
    const auto come = socket.receive(record.data() + heard_, record.size() - heard_);
    if (!come) return std::unexpected(come.error());
    heard_ += *come;
    if (heard_ < record.size()) return false;
    heard_ = 0;
    return true;
}

AskingSide::AskingSide(const ConnectRequest& request, const Terms& terms) : terms_(terms) {
    const Nonce nonce = fresh(exchange_, terms.encrypt);
    ours_ = encode_hello(ClientHello{kProtocolVersion, flags_of(terms), encode(request), nonce});
    talk_.say(ours_);
}

Result<bool> AskingSide::advance(const Socket& socket) {
    if (auto sent = talk_.flush(socket); !sent || !*sent) return sent;
    if (!proofs_) {
        if (auto whole = talk_.hear(socket, theirs_); !whole || !*whole) return whole;
        if (auto answered = answer_hello(); !answered) return std::unexpected(answered.error());
        if (auto sent = talk_.flush(socket); !sent || !*sent) return sent;
    }
    if (auto whole = talk_.hear(socket, shown_); !whole || !*whole) return whole;
    if (!equal_constant_time(proofs_->server, shown_))
        return fail(Errc::denied, "it does not know what the ranks of this group know");
    if (!exchange_) return true;
    const auto answer = decode_server_hello(theirs_);
    const auto keys = session_keys(*exchange_, answer->nonce, terms_.secret, ours_, theirs_);
    if (!keys) return std::unexpected(keys.error());
    sealing_ = Sealing{Seal(keys->client), Seal(keys->server)};
    return true;
}

Result<void> AskingSide::answer_hello() {
    const auto hello = decode_server_hello(theirs_);
    if (!hello) return fail(Errc::denied, "it does not speak dtrun's protocol");
    if (hello->version != kProtocolVersion)
        return fail(Errc::denied, "it speaks protocol {}, this is {}", hello->version,
                    kProtocolVersion);
    if (hello->flags != flags_of(terms_))
        return fail(Errc::denied, "it wants a connection {} encryption (DTRUN_ENCRYPT)",
                    terms_.encrypt ? "without" : "with");
    proofs_ = make_proofs(terms_.secret, ours_, theirs_);
    talk_.say(proofs_->client);
    return {};
}

Result<bool> AnsweringSide::advance(const Socket& socket, const Terms& terms) {
    if (auto sent = talk_.flush(socket); !sent || !*sent) return sent;
    if (state_ == State::hello) {
        if (auto whole = talk_.hear(socket, theirs_); !whole || !*whole) return whole;
        if (auto answered = answer_hello(terms); !answered)
            return std::unexpected(answered.error());
        if (auto sent = talk_.flush(socket); !sent || !*sent) return sent;
    }
    if (state_ == State::proof) {
        if (auto whole = talk_.hear(socket, shown_); !whole || !*whole) return whole;
        if (auto answered = answer_proof(socket, terms); !answered)
            return std::unexpected(answered.error());
    }
    return talk_.flush(socket);
}

Result<void> AnsweringSide::answer_hello(const Terms& terms) {
    const auto hello = decode_hello(theirs_);
    if (!hello) return std::unexpected(hello.error());
    const auto request = decode_connect_request(hello->job);
    if (!request) return fail(Errc::denied, "it is no rank");
    request_ = *request;
    const Nonce nonce = fresh(exchange_, terms.encrypt && hello->flags == flags_of(terms));
    ours_ = encode_hello(ServerHello{kProtocolVersion, flags_of(terms), nonce});
    talk_.say(ours_);
    // Who wants something else learns from our hello what we want, and closes.
    state_ = State::proof;
    return {};
}

Result<void> AnsweringSide::answer_proof(const Socket& socket, const Terms& terms) {
    const Proofs proofs = make_proofs(terms.secret, theirs_, ours_);
    const auto hello = decode_hello(theirs_);
    if (hello->flags != flags_of(terms) || !equal_constant_time(proofs.client, shown_)) {
        talk_.say(Sha256{});  // the handshake's refusal
        static_cast<void>(talk_.flush(socket));
        return fail(Errc::denied, "it does not know what the ranks of this group know");
    }
    if (exchange_) {
        const auto keys = session_keys(*exchange_, hello->nonce, terms.secret, theirs_, ours_);
        if (!keys) return std::unexpected(keys.error());
        sealing_ = Sealing{Seal(keys->server), Seal(keys->client)};
    }
    talk_.say(proofs.server);
    state_ = State::done;
    return {};
}

}  // namespace dtrun::collectives::over_tcp
