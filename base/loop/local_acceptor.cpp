#include "base/loop/local_acceptor.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/peer_user.h"

#include <utility>

namespace dtrun {

LocalAcceptor::LocalAcceptor(asio::any_io_executor executor, std::string what)
    : what_(std::move(what)), acceptor_(executor), trouble_(what_) {}

Result<std::uint16_t> LocalAcceptor::listen() {
    const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), 0);
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) close_on_exec(acceptor_.native_handle());
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(SOMAXCONN, error);
    if (error)
        return fail(Errc::internal, "listen on 127.0.0.1 for {}: {}", what_, error.message());
    return acceptor_.local_endpoint().port();
}

asio::awaitable<std::optional<tcp::socket>> LocalAcceptor::next() {
    for (;;) {
        auto socket = co_await accept_next(acceptor_, trouble_);
        if (!socket) co_return std::nullopt;
        const PeerUser user = peer_user(*socket);
        if (user == PeerUser::ours) co_return std::move(socket);
        const bool stranger = user == PeerUser::other || user == PeerUser::unknown;
        if (stranger && !std::exchange(told_of_strangers_, true))
            log::warn("{}: turned away {}", what_, describe(user));
    }
}

void LocalAcceptor::close() noexcept {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
}

}  // namespace dtrun
