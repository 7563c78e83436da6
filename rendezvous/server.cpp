#include "rendezvous/server.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/net.h"

#include <sys/socket.h>

namespace dtrun {
namespace {

constexpr std::chrono::seconds kLogPause{1};
constexpr std::size_t kDenialsLogged = 20;  // in each pause

}  // namespace

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
        serve(std::move(acceptor));
    }
    return port;
}

Result<std::uint16_t> Server::adopt(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        (address.ss_family != AF_INET && address.ss_family != AF_INET6))
        return fail(Errc::invalid_input, "descriptor {} is no TCP socket that listens", fd);
    const tcp protocol = address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4();
    auto acceptor = std::make_unique<tcp::acceptor>(executor_);
    boost::system::error_code error;
    acceptor->assign(protocol, fd, error);
    if (error) return fail(Errc::invalid_input, "descriptor {}: {}", fd, error.message());
    close_on_exec(fd);
    const std::uint16_t port = acceptor->local_endpoint().port();
    serve(std::move(acceptor));
    return port;
}

void Server::serve(std::unique_ptr<tcp::acceptor> acceptor) {
    tasks_.spawn(accept_loop(*acceptor));
    acceptors_.push_back(std::move(acceptor));
}

/// A flood must not fill the log.
void Server::refuse_one() {
    ++refused_;
    const Deadline now = Clock::now();
    if (now < refusals_told_ + kLogPause) return;
    refusals_told_ = now;
    log::warn("{} connections are not authenticated yet: refused {} more", strangers_,
              std::exchange(refused_, 0));
}

void Server::denied(const std::string& peer, const Error& why) {
    const Deadline now = Clock::now();
    if (now > denials_since_ + kLogPause) {
        if (denied_ > kDenialsLogged)
            log::info("and {} more connections like that", denied_ - kDenialsLogged);
        denials_since_ = now;
        denied_ = 0;
    }
    if (++denied_ <= kDenialsLogged) log::info("refused connection from {}: {}", peer, why.message);
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
            refuse_one();
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
    auto known = co_await authenticate_client(socket, secret_of_, options_.encrypt, deadline);
    --strangers_;
    if (!known) {
        denied(numeric(peer.address()), known.error());
        co_return;
    }
    admit_(known->job, Connection{std::move(socket), std::move(known->sealing)});
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
