#include "rendezvous/server.h"

#include "base/fd.h"
#include "base/log.h"

#include <sys/socket.h>

namespace dtrun {

Server::Server(asio::any_io_executor executor, SecretOf secret_of, Admit admit,
               ServerOptions options)
    : executor_(executor),
      secret_of_(std::move(secret_of)),
      admit_(std::move(admit)),
      options_(options),
      tasks_(executor) {}

Result<std::uint16_t> Server::listen(const std::vector<std::string>& addresses,
                                     std::uint16_t port) {
    for (const std::string& text : addresses) {
        boost::system::error_code error;
        const auto address = asio::ip::make_address(text, error);
        if (error) return fail(Errc::invalid_input, "{}: not a numeric address", text);
        auto acceptor = std::make_unique<tcp::acceptor>(executor_);
        const tcp::endpoint endpoint(address, port);
        acceptor->open(endpoint.protocol(), error);
        if (!error) close_on_exec(acceptor->native_handle());
        if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
        if (!error && address.is_v6()) {
            // An IPv6 wildcard serves IPv4 as well.
            acceptor->set_option(asio::ip::v6_only(!address.is_unspecified()), error);
        }
        if (!error) acceptor->bind(endpoint, error);
        if (!error) acceptor->listen(SOMAXCONN, error);
        if (error) {
            const Errc code = error == asio::error::access_denied ? Errc::denied : Errc::internal;
            return fail(code, "listen on {} port {}: {}", text, port, error.message());
        }
        port = acceptor->local_endpoint().port();
        tasks_.spawn(accept_loop(*acceptor));
        acceptors_.push_back(std::move(acceptor));
    }
    return port;
}

asio::awaitable<void> Server::accept_loop(tcp::acceptor& acceptor) {
    while (acceptor.is_open()) {
        auto [error, socket] = co_await acceptor.async_accept(use_tuple);
        if (error == asio::error::operation_aborted) co_return;
        if (error) {
            log::warn("accept: {}", error.message());
            if (error != asio::error::no_descriptors) continue;
            // Out of descriptors: the connection stays in the backlog; try when something closes.
            asio::steady_timer pause(executor_, std::chrono::milliseconds(50));
            co_await pause.async_wait(use_tuple);
            continue;
        }
        if (strangers_ >= options_.strangers_max) {
            log::warn("too many unauthenticated connections ({}): refused one", strangers_);
            continue;
        }
        close_on_exec(socket.native_handle());
        ++strangers_;
        tasks_.spawn(greet(std::move(socket)));
    }
}

asio::awaitable<void> Server::greet(tcp::socket socket) {
    boost::system::error_code ignored;
    const auto peer = socket.remote_endpoint(ignored);
    socket.set_option(tcp::no_delay(true), ignored);
    const Deadline deadline = after(options_.authentication_timeout);
    const auto job = co_await authenticate_client(socket, secret_of_, deadline);
    --strangers_;
    if (!job) {
        log::info("refused connection from {}: {}", peer.address().to_string(),
                  job.error().message);
        co_return;
    }
    admit_(*job, std::move(socket));
}

void Server::stop() noexcept {
    for (const auto& acceptor : acceptors_) {
        boost::system::error_code ignored;
        acceptor->close(ignored);
    }
    tasks_.stop();
}

asio::awaitable<void> Server::join() {
    return tasks_.join();
}

}  // namespace dtrun
