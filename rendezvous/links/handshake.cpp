#include "rendezvous/links/handshake.h"

#include "base/crypto.h"
#include "rendezvous/wire/handshake_records.h"

namespace dtrun {
namespace {

/// A random nonce; with encryption it is the side's public key of the key exchange.
Nonce make_nonce(const std::optional<KeyExchange>& exchange) {
    return exchange ? exchange->public_key() : random_nonce();
}

std::string wanted(bool encrypt) {
    return encrypt ? "an encrypted connection" : "a connection without encryption";
}

/// Reads or writes all of `buffer` before `deadline`.
template <class Transfer>
asio::awaitable<Result<void>> timed(tcp::socket& socket, Deadline deadline, Transfer transfer) {
    DeadlineGuard guard(socket, deadline);
    const auto [error, bytes] = co_await std::move(transfer);
    if (guard.expired()) co_return fail(Errc::timed_out, "no answer during authentication");
    if (error == asio::error::eof || error == asio::error::connection_reset)
        co_return fail(Errc::closed, "connection closed during authentication");
    if (error) co_return fail(Errc::closed, "{}", error.message());
    co_return Result<void>{};
}

asio::awaitable<Result<void>> read_record(tcp::socket& socket, std::span<std::uint8_t> record,
                                          Deadline deadline) {
    const auto buffer = asio::buffer(record.data(), record.size());
    auto transfer = asio::async_read(socket, buffer, use_tuple);
    co_return co_await timed(socket, deadline, std::move(transfer));
}

asio::awaitable<Result<void>> write_record(tcp::socket& socket,
                                           std::span<const std::uint8_t> record,
                                           Deadline deadline) {
    const auto buffer = asio::buffer(record.data(), record.size());
    auto transfer = asio::async_write(socket, buffer, use_tuple);
    co_return co_await timed(socket, deadline, std::move(transfer));
}

}  // namespace

asio::awaitable<Result<std::optional<Sealing>>> authenticate_to_server(tcp::socket& socket,
                                                                       Credentials credentials,
                                                                       Deadline deadline) {
    std::optional<KeyExchange> exchange;
    if (credentials.encrypt) exchange.emplace();
    const std::uint16_t flags = credentials.encrypt ? kFlagEncrypt : 0;
    const ClientHello hello{kProtocolVersion, flags, credentials.job, make_nonce(exchange)};
    const ClientRecord ours = encode_hello(hello);
    auto done = co_await write_record(socket, ours, deadline);
    if (!done) co_return std::unexpected(done.error());

    ServerRecord theirs;
    done = co_await read_record(socket, theirs, deadline);
    if (!done) co_return std::unexpected(done.error());
    const auto answer = decode_server_hello(theirs);
    if (!answer) co_return fail(Errc::denied, "the other side does not speak dtrun's protocol");
    if (answer->version != kProtocolVersion)
        co_return fail(Errc::denied, "the other side speaks protocol {}, this is {}",
                       answer->version, kProtocolVersion);
    if (answer->flags != flags)
        co_return fail(Errc::denied, "the other side wants {} (--encrypt)",
                       wanted(!credentials.encrypt));

    const Proofs proofs = make_proofs(credentials.secret, ours, theirs);
    done = co_await write_record(socket, proofs.client, deadline);
    if (!done) co_return std::unexpected(done.error());
    Sha256 shown;
    done = co_await read_record(socket, shown, deadline);
    if (!done) co_return std::unexpected(done.error());
    if (!equal_constant_time(proofs.server, shown))
        co_return fail(Errc::denied, "the other side does not know the job's secret");
    if (!exchange) co_return std::optional<Sealing>();
    const auto keys = session_keys(*exchange, answer->nonce, credentials.secret, ours, theirs);
    if (!keys) co_return std::unexpected(keys.error());
    co_return Sealing{Seal(keys->client), Seal(keys->server)};
}

asio::awaitable<Result<Authenticated>> authenticate_client(tcp::socket& socket, SecretOf secret_of,
                                                           bool encrypt, Deadline deadline) {
    ClientRecord theirs;
    auto done = co_await read_record(socket, theirs, deadline);
    if (!done) co_return std::unexpected(done.error());
    const auto hello = decode_hello(theirs);
    if (!hello) co_return std::unexpected(hello.error());

    std::optional<KeyExchange> exchange;
    const std::uint16_t flags = encrypt ? kFlagEncrypt : 0;
    if (encrypt && hello->flags == flags) exchange.emplace();
    const ServerRecord ours =
        encode_hello(ServerHello{kProtocolVersion, flags, make_nonce(exchange)});
    done = co_await write_record(socket, ours, deadline);
    if (!done) co_return std::unexpected(done.error());
    const Sha256 refusal{};
    const bool wrong_version = hello->version != kProtocolVersion;
    if (wrong_version || hello->flags != flags) {
        // Clients before version 3 read this record, too, before they check the version.
        done = co_await write_record(socket, refusal, deadline);
        if (wrong_version)
            co_return fail(Errc::denied, "speaks protocol {}, this is {}", hello->version,
                           kProtocolVersion);
        co_return fail(Errc::denied, "wants {}", wanted(!encrypt));
    }

    Sha256 shown;
    done = co_await read_record(socket, shown, deadline);
    if (!done) co_return std::unexpected(done.error());
    // An unknown job gets a random secret: clients cannot tell it from a wrong secret.
    const auto known = secret_of(hello->job);
    const Secret secret = known ? *known : Secret::random();
    const Proofs proofs = make_proofs(secret, theirs, ours);
    const bool proved = equal_constant_time(proofs.client, shown);
    const Sha256 answer = proved ? proofs.server : refusal;
    done = co_await write_record(socket, answer, deadline);
    if (!proved) co_return fail(Errc::denied, "wrong secret");
    if (!done) co_return std::unexpected(done.error());
    if (!exchange) co_return Authenticated{hello->job, std::nullopt};
    const auto keys = session_keys(*exchange, hello->nonce, secret, theirs, ours);
    if (!keys) co_return std::unexpected(keys.error());
    co_return Authenticated{hello->job, Sealing{Seal(keys->server), Seal(keys->client)}};
}

}  // namespace dtrun
