#include "rendezvous/links/handshake.h"

#include "rendezvous/wire/handshake.h"

namespace dtrun {
namespace {

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

/// Until both sides have proved themselves.
asio::awaitable<Result<void>> carry(tcp::socket& socket, Handshake& handshake, Deadline deadline) {
    Result<void> fits;
    for (;;) {
        Result<void> done;
        const Bytes said = handshake.take_output();
        if (!said.empty()) {
            auto writing = asio::async_write(socket, asio::buffer(said), use_tuple);
            done = co_await timed(socket, deadline, std::move(writing));
        }
        if (!fits) co_return fits;
        const auto room = handshake.room();
        if (!done || room.empty()) co_return done;
        auto reading = asio::async_read(socket, asio::buffer(room.data(), room.size()), use_tuple);
        done = co_await timed(socket, deadline, std::move(reading));
        if (!done) co_return done;
        fits = handshake.come(room.size());
    }
}

}  // namespace

asio::awaitable<Result<std::optional<Sealing>>> authenticate_to_server(tcp::socket& socket,
                                                                       Credentials credentials,
                                                                       Deadline deadline) {
    std::optional<KeyExchange> exchange;
    const HandshakeTerms terms = make_terms(credentials.encrypt, exchange);
    Handshake handshake(credentials.job, credentials.secret, terms);
    const auto done = co_await carry(socket, handshake, deadline);
    if (!done) co_return std::unexpected(done.error());
    co_return make_sealing(exchange, handshake);
}

asio::awaitable<Result<Authenticated>> authenticate_client(tcp::socket& socket, SecretOf secret_of,
                                                           bool encrypt, Deadline deadline) {
    std::optional<KeyExchange> exchange;
    const HandshakeTerms terms = make_terms(encrypt, exchange);
    Handshake handshake(std::move(secret_of), terms);
    const auto done = co_await carry(socket, handshake, deadline);
    if (!done) co_return std::unexpected(done.error());
    auto sealing = make_sealing(exchange, handshake);
    if (!sealing) co_return std::unexpected(sealing.error());
    co_return Authenticated{handshake.job(), std::move(*sealing)};
}

}  // namespace dtrun
