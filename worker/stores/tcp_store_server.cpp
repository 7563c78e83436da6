#include "worker/stores/tcp_store_server.h"

#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/accept.h"
#include "base/loop/net.h"
#include "base/loop/peer_user.h"
#include "base/milliseconds.h"
#include "worker/stores/session_socket.h"
#include "worker/stores/tcp_store_names.h"
#include "worker/stores/tcp_store_session.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

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

std::string describe(const TorchWaiting& waiting) {
    const std::string key = shown_torch_key(waiting.key);
    if (waiting.barrier) return fmt::format("torch's store: barrier {}", key);
    if (waiting.pop) return fmt::format("torch's store: an item of queue {}", key);
    if (waiting.keys == 1) return fmt::format("torch's store: key {}", key);
    return fmt::format("torch's store: {} keys, the first of them {}", waiting.keys, key);
}

}  // namespace

struct TcpStoreServer::Connection final : SessionSocket<tcp::socket, TcpStoreSession> {
    Connection(TcpStoreServer& owner, tcp::socket accepted, std::string from, bool of_this_machine)
        : SessionSocket(std::move(accepted), owner.tasks_),
          address(std::move(from)),
          from_here(of_this_machine),
          server(owner) {}

    const std::string address;
    const bool from_here;   ///< from this machine
    bool in_doubt = false;  ///< it is in undecided_
    Rank rank = kNoRank;

private:
    std::span<char> room() override { return session().room(); }
    void received(std::size_t bytes) override { session().received(bytes); }
    void set_writable(bool writable) override { session().set_writable(writable); }
    void failed(const Error& failure) override {
        if (failure.code == Errc::invalid_input)
            server.complain(fmt::format("torch's store: closed a connection of {}: {}", address,
                                        failure.message));
    }
    void flushed() override {
        if (session().undecided() && !std::exchange(in_doubt, true))
            server.undecided_.push_back(std::static_pointer_cast<Connection>(shared_from_this()));
    }

    TcpStoreServer& server;
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
    // A rank that is alone in a later generation listens here itself, while connections to a host that is lost
    // have not ended yet: they have this from their listener.
    const int reuse = 1;
    ::setsockopt(bound.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
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

/// Asks the agent of a connection's host whose it is, as this protocol does not tell. Nothing is
/// read from the connection before the answer.
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

/// Logs each of them once, since strangers could fill the log.
void TcpStoreServer::turn_away(std::string_view who, std::string_view why) {
    if (turned_away_.size() < kTurnedAwayMax && turned_away_.emplace(who).second)
        log::warn("torch's store: turned away {}: {}", who, why);
}

void TcpStoreServer::enter(tcp::socket socket, std::string address, bool from_here) {
    const auto connection =
        std::make_shared<Connection>(*this, std::move(socket), std::move(address), from_here);
    Connection* const raw = connection.get();
    TcpStoreSession::Hooks hooks;
    hooks.changed = [raw] { raw->flush(); };
    hooks.has_idle_sibling = [this, raw] { return has_idle_sibling(*raw); };
    hooks.is_rank = [this, raw](std::uint32_t rank) { is_rank(*raw, rank); };
    connection->begin(*store_, std::move(hooks));
    connections_.insert(connection);
    tasks_.spawn(serve(connection));
    // This connection may settle which version of the protocol others of its host speak.
    for (const std::weak_ptr<Connection>& other : std::exchange(undecided_, {}))
        if (const Shared doubtful = other.lock(); doubtful && !doubtful->closed()) {
            doubtful->in_doubt = false;
            doubtful->session().reconsider();
            doubtful->flush();
        }
}

asio::awaitable<void> TcpStoreServer::serve(Shared connection) {
    co_await connection->run();
    connections_.erase(connection);
}

/// Nobody waits any more when this returns.
void TcpStoreServer::close_all() noexcept {
    asked_about_.clear();
    for (const Shared& connection : connections_) connection->end();
}

bool TcpStoreServer::has_idle_sibling(const Connection& connection) const {
    return std::ranges::any_of(connections_, [&](const Shared& other) {
        return other.get() != &connection && !other->closed() && !other->session().has_spoken() &&
               other->address == connection.address;
    });
}

void TcpStoreServer::is_rank(Connection& connection, std::uint32_t rank) {
    if (rank < world_size_)
        connection.rank = Rank{rank};
    else
        more_ranks_ = true;
}

std::vector<RankWait> TcpStoreServer::waits() const {
    std::vector<RankWait> all;
    for (const Shared& connection : connections_)
        if (!connection->closed() && connection->session().waiting())
            all.push_back(wait_of(*connection));
    return all;
}

RankWait TcpStoreServer::wait_of(const Connection& connection) const {
    const auto waiting = connection.session().waiting();
    RankWait wait;
    wait.rank = connection.rank;
    wait.pid = connection.session().pid();
    if (!connection.from_here) wait.address = connection.address;
    wait.what = describe(*waiting);
    wait.starting = waiting->for_rank.has_value();
    wait.hopeless = !more_ranks_ && waiting->for_rank && *waiting->for_rank >= world_size_;
    wait.waited_ms = to_ms(Clock::now() - waiting->since);
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
