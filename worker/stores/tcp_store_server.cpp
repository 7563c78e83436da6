#include "worker/stores/tcp_store_server.h"

#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/accept.h"
#include "base/loop/net.h"
#include "worker/stores/peer_user.h"
#include "worker/stores/tcp_store_names.h"
#include "worker/stores/tcp_store_session.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

namespace dtrun::stores {
namespace {

constexpr std::size_t kComplaintsMax = 20;     // of one generation
constexpr std::size_t kTurnedAwayMax = 1'000;  // addresses that are remembered
/// A rank has one or two, and each of its own workers may have as many.
constexpr std::size_t kConnectionsOfAll = 1'024, kConnectionsOfRank = 64;

/// An accepted socket has the options of the one that listened.
void set_options(int fd) {
    const auto set = [fd](int level, int option, int value) {
        ::setsockopt(fd, level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    // Nobody sends heartbeats here; a host that is gone without a word is to hold nothing for ever.
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

/// As peer addresses are compared: one spelling of each.
std::string canonical(const std::string& text) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(text, error);
    return error ? text : numeric(address);
}

bool has_hung_up(tcp::socket& socket) {
    char byte = 0;
    return ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

std::string describe(const TcpStoreSession::Waiting& waiting) {
    const std::string key = shown_torch_key(waiting.key);
    if (waiting.barrier) return fmt::format("torch's store: barrier {}", key);
    if (waiting.pop) return fmt::format("torch's store: an item of queue {}", key);
    if (waiting.keys == 1) return fmt::format("torch's store: key {}", key);
    return fmt::format("torch's store: {} keys, the first of them {}", waiting.keys, key);
}

}  // namespace

struct TcpStoreServer::Connection : std::enable_shared_from_this<Connection> {
    explicit Connection(tcp::socket accepted)
        : socket(std::move(accepted)),
          wake(socket.get_executor(), asio::steady_timer::time_point::max()) {}

    tcp::socket socket;
    std::string address;
    bool from_here = false;  ///< from this machine
    bool closed = false;
    std::optional<TcpStoreSession> session;  ///< none, if closed, as soon as that may be
    asio::steady_timer wake;                 ///< of the reader that waits for wants_input()
    bool resting = false;                    ///< that it does
    bool in_doubt = false;                   ///< it is in undecided_
    bool writing = false;
    std::uint32_t rank = kNoRank;
};

TcpStoreServer::TcpStoreServer(asio::any_io_executor executor)
    : executor_(executor), acceptor_(executor), tasks_(executor) {}

TcpStoreServer::~TcpStoreServer() = default;

Result<void> TcpStoreServer::listen(Fd bound) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
        return fail(Errc::internal, "torch's store: {}", std::strerror(errno));
    set_options(bound.get());
    const tcp protocol = address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4();
    boost::system::error_code error;
    acceptor_.assign(protocol, bound.get(), error);
    if (!error) {
        close_on_exec(bound.release());
        acceptor_.listen(SOMAXCONN, error);
    }
    if (error) return fail(Errc::internal, "torch's store: listen: {}", error.message());
    tasks_.spawn(accept_loop());
    return {};
}

void TcpStoreServer::begin(JobStore& store, std::uint32_t world_size, Peers peers) {
    close_all();
    store_ = &store;
    world_size_ = world_size;
    more_ranks_ = false;
    complaints_ = 0;
    turned_away_.clear();
    own_.clear();
    for (const InterfaceAddress& own : interface_addresses()) own_.insert(canonical(own.address));
    peers_.clear();
    for (const std::string& peer : peers.addresses) peers_.insert(canonical(peer));
    ask_user_ = std::move(peers.ask);
}

asio::awaitable<void> TcpStoreServer::accept_loop() {
    AcceptTrouble trouble("torch's store");
    for (;;) {
        auto socket = co_await accept_next(acceptor_, trouble);
        if (!socket) co_return;
        admit(std::move(*socket));
    }
}

bool TcpStoreServer::is_from_here(const tcp::socket& socket, const std::string& address) const {
    boost::system::error_code error;
    const auto remote = asio::ip::make_address(address, error);
    return (!error && remote.is_loopback()) || address == local_address(socket) ||
           own_.contains(address);
}

void TcpStoreServer::admit(tcp::socket socket) {
    if (store_ == nullptr) return;
    std::string address = remote_address(socket);
    if (connections_.size() + asked_about_.size() >=
        kConnectionsOfAll + kConnectionsOfRank * world_size_)
        return complain(
            fmt::format("torch's store: {} connections are too many", connections_.size()));
    if (!is_from_here(socket, address)) return ask_whose(std::move(socket), std::move(address));
    const PeerUser user = peer_user(socket);
    if (user == PeerUser::ours) return enter(std::move(socket), std::move(address), true);
    if (user != PeerUser::gone) turn_away(describe(user), "only the job's own may connect");
}

/// Who speaks this protocol cannot be asked who he is; his host can. What he says is read after that.
void TcpStoreServer::ask_whose(tcp::socket socket, std::string address) {
    if (!peers_.contains(address) || !ask_user_)
        return turn_away(address, "only the job's hosts may connect");
    boost::system::error_code gone;
    const tcp::endpoint there = socket.remote_endpoint(gone);
    const tcp::endpoint here = socket.local_endpoint(gone);
    if (gone) return;
    const auto asked = std::make_shared<tcp::socket>(std::move(socket));
    asked_about_.insert(asked);
    const std::weak_ptr<tcp::socket> still(asked);
    ask_user_(there, here, [this, still, address](PeerUser user) {
        const auto waiting = still.lock();
        if (!waiting || asked_about_.erase(waiting) == 0) return;
        if (user == PeerUser::ours) return enter(std::move(*waiting), address, false);
        if (has_hung_up(*waiting)) return;  // then there is nothing to be found
        turn_away(address, user == PeerUser::unknown
                               ? "dtrun's agent there has not said in time whose that process is"
                               : "no process of the job's user there has that connection (behind "
                                 "the network of a container, use --store rank0)");
    });
}

/// Each once: strangers could fill the log.
void TcpStoreServer::turn_away(std::string_view who, std::string_view why) {
    if (turned_away_.size() < kTurnedAwayMax && turned_away_.emplace(who).second)
        log::warn("torch's store: turned away {}: {}", who, why);
}

void TcpStoreServer::enter(tcp::socket socket, std::string address, bool from_here) {
    const auto connection = std::make_shared<Connection>(std::move(socket));
    connection->address = std::move(address);
    connection->from_here = from_here;
    Connection* const raw = connection.get();
    TcpStoreSession::Hooks hooks;
    hooks.changed = [this, raw] { flush(*raw); };
    hooks.has_idle_sibling = [this, raw] { return has_idle_sibling(*raw); };
    hooks.is_rank = [this, raw](std::uint32_t rank) { is_rank(*raw, rank); };
    connection->session.emplace(*store_, std::move(hooks));
    connections_.insert(connection);
    tasks_.spawn(serve(connection));
    // It may be what decides for those of its host that were in doubt.
    for (const std::weak_ptr<Connection>& other : std::exchange(undecided_, {}))
        if (const Shared doubtful = other.lock(); doubtful && !doubtful->closed) {
            doubtful->in_doubt = false;
            doubtful->session->reconsider();
            flush(*doubtful);
        }
}

asio::awaitable<void> TcpStoreServer::serve(Shared connection) {
    while (!connection->closed) {
        if (!connection->session->wants_input()) {
            connection->resting = true;
            co_await connection->wake.async_wait(use_tuple);
            continue;
        }
        const std::span<char> room = connection->session->room();
        const auto buffer = asio::buffer(room.data(), room.size());
        const auto [error, bytes] = co_await connection->socket.async_read_some(buffer, use_tuple);
        if (error || connection->closed) break;
        connection->session->received(bytes);
        flush(*connection);
    }
    close(*connection);
    connection->session.reset();
    connections_.erase(connection);
}

/// Sends what there is, as far as the kernel takes it; the rest is for a coroutine.
void TcpStoreServer::flush(Connection& connection) {
    if (connection.closed) return;
    TcpStoreSession& session = *connection.session;
    while (session.has_output() && !connection.writing) {
        const std::string_view output = session.output();
        const ssize_t sent = ::send(connection.socket.native_handle(), output.data(), output.size(),
                                    MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            session.sent(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            connection.writing = true;
            session.set_writable(false);
            tasks_.spawn(write_rest(connection.shared_from_this()));
        } else if (errno != EINTR) {
            return close(connection);
        }
    }
    if (const auto& failure = session.failure(); failure && !connection.writing) {
        if (failure->code == Errc::invalid_input)
            complain(fmt::format("torch's store: closed a connection of {}: {}", connection.address,
                                 failure->message));
        return close(connection);
    }
    if (session.undecided() && !std::exchange(connection.in_doubt, true))
        undecided_.push_back(connection.weak_from_this());
    if (std::exchange(connection.resting, false)) connection.wake.cancel();
}

asio::awaitable<void> TcpStoreServer::write_rest(Shared connection) {
    while (!connection->closed && connection->session->has_output()) {
        const Bytes rest = connection->session->take_output();
        const auto buffer = asio::buffer(rest);
        const auto [error, bytes] =
            co_await asio::async_write(connection->socket, buffer, use_tuple);
        if (connection->closed) co_return;
        if (error) {
            close(*connection);
            co_return;
        }
    }
    connection->writing = false;
    if (connection->closed) co_return;
    connection->session->set_writable(true);
    flush(*connection);
}

/// Its reader removes it, and the session: this may be within a call of that.
void TcpStoreServer::close(Connection& connection) noexcept {
    boost::system::error_code ignored;
    connection.closed = true;
    connection.socket.close(ignored);
    connection.wake.cancel();
}

/// Nobody waits any more when this returns.
void TcpStoreServer::close_all() noexcept {
    asked_about_.clear();
    for (const Shared& connection : connections_) {
        close(*connection);
        connection->session.reset();
    }
}

bool TcpStoreServer::has_idle_sibling(const Connection& connection) const {
    return std::ranges::any_of(connections_, [&](const Shared& other) {
        return other.get() != &connection && !other->closed && !other->session->has_spoken() &&
               other->address == connection.address;
    });
}

void TcpStoreServer::is_rank(Connection& connection, std::uint32_t rank) {
    if (rank < world_size_)
        connection.rank = rank;
    else
        more_ranks_ = true;
}

std::vector<RankWait> TcpStoreServer::waits() const {
    std::vector<RankWait> all;
    for (const Shared& connection : connections_)
        if (!connection->closed && connection->session->waiting())
            all.push_back(wait_of(*connection));
    return all;
}

RankWait TcpStoreServer::wait_of(const Connection& connection) const {
    const auto waiting = connection.session->waiting();
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - waiting->since);
    RankWait wait;
    wait.rank = connection.rank;
    wait.pid = connection.session->pid();
    if (!connection.from_here) wait.address = connection.address;
    wait.what = describe(*waiting);
    wait.starting = waiting->for_rank.has_value();
    wait.hopeless = !more_ranks_ && waiting->for_rank && *waiting->for_rank >= world_size_;
    wait.waited_ms = static_cast<std::uint32_t>(
        std::min<std::int64_t>(waited.count(), std::numeric_limits<std::uint32_t>::max()));
    return wait;
}

/// Strangers could fill the log.
void TcpStoreServer::complain(const std::string& text) {
    if (++complaints_ > kComplaintsMax) return;
    log::warn("{}{}", text, complaints_ == kComplaintsMax ? "; no more of these are told" : "");
}

void TcpStoreServer::end() noexcept {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    close_all();
    store_ = nullptr;
}

void TcpStoreServer::stop() noexcept {
    end();
    tasks_.stop();
}

asio::awaitable<void> TcpStoreServer::join() {
    return tasks_.join();
}

}  // namespace dtrun::stores
