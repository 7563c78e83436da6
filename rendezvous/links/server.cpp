#include "rendezvous/links/server.h"

#include "base/fd.h"
#include "base/ids.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/accept.h"
#include "base/loop/net.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <algorithm>
#include <iterator>

namespace dtrun {
namespace {

constexpr std::chrono::seconds kLogPause{1};
constexpr std::size_t kDenialsLogged = 20;  // in each kLogPause

std::size_t quarter(std::size_t all) {
    return std::max<std::size_t>(all / 4, 1);
}

/// Limits unauthenticated connections, which must not use up this process's descriptors.
std::size_t room_for_unauthenticated(std::size_t wanted) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
    return std::min<std::size_t>(wanted, quarter(limit.rlim_cur));
}

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
    std::vector<std::unique_ptr<tcp::acceptor>> acceptors;
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
        acceptors.push_back(std::move(acceptor));
    }
    for (auto& acceptor : acceptors) serve(std::move(acceptor));
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
    AcceptTrouble trouble("the rendezvous server");
    for (;;) {
        auto socket = co_await accept_next(acceptor, trouble);
        if (!socket) co_return;
        meet(std::move(*socket));
    }
}

void Server::meet(tcp::socket socket) {
    boost::system::error_code gone;
    const tcp::endpoint peer = socket.remote_endpoint(gone);
    if (gone) return;
    const std::string from = origin_of(peer.data());
    make_room(from);
    const std::uint64_t id = ++last_unauthenticated_;
    const auto shared = std::make_shared<tcp::socket>(std::move(socket));
    unauthenticated_.emplace(id, UnauthenticatedPeer{shared, from});
    ++unauthenticated_from_[from];
    tasks_.spawn(greet(shared, id));
}

/// Closes one of the unauthenticated connections if there are too many, whichever it is. If it were the newest,
/// nobody could connect while strangers hold all places; and if it were the oldest, nobody could while more come than
/// are served: each would be closed before its turn.
void Server::make_room(const std::string& from) {
    const std::size_t room = room_for_unauthenticated(options_.unauthenticated_max);
    const auto those = unauthenticated_from_.find(from);
    const bool too_many_of_those =
        those != unauthenticated_from_.end() && those->second >= quarter(room);
    if (!too_many_of_those && unauthenticated_.size() < room) return;
    const auto may_go = [&](const auto& each) {
        return !too_many_of_those || each.second.from == from;
    };
    const auto any = std::next(unauthenticated_.begin(),
                               static_cast<std::ptrdiff_t>(random_id() % unauthenticated_.size()));
    auto chosen = std::find_if(any, unauthenticated_.end(), may_go);
    if (chosen == unauthenticated_.end()) chosen = std::ranges::find_if(unauthenticated_, may_go);
    const std::size_t crowd = too_many_of_those ? those->second : unauthenticated_.size();
    if (const auto times = crowd_.count())
        log::warn("{} connections are not authenticated yet{}{}: closed {} of them", crowd,
                  too_many_of_those ? ", all from " : "", too_many_of_those ? from : "", *times);
    // cancel() does no harm to a connection that has authenticated itself a moment ago.
    boost::system::error_code ignored;
    chosen->second.socket->cancel(ignored);
    forget(chosen->first);
}

/// \return whether it was still among the unauthenticated connections
bool Server::forget(std::uint64_t id) {
    const auto node = unauthenticated_.extract(id);
    if (node.empty()) return false;
    const auto those = unauthenticated_from_.find(node.mapped().from);
    if (--those->second == 0) unauthenticated_from_.erase(those);
    return true;
}

asio::awaitable<void> Server::greet(std::shared_ptr<tcp::socket> socket, std::uint64_t id) {
    boost::system::error_code ignored;
    const auto peer = socket->remote_endpoint(ignored);
    socket->set_option(tcp::no_delay(true), ignored);
    const Deadline deadline = after(options_.authentication_timeout);
    auto known = co_await authenticate_client(*socket, secret_of_, options_.encrypt, deadline);
    const bool had_its_place = forget(id);
    if (known)
        admit_(known->job, Connection{std::move(*socket), std::move(known->sealing)});
    else if (had_its_place)
        denied(numeric(peer.address()), known.error());
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
