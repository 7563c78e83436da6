#include "worker/stores/horovod_server.h"

#include "base/log.h"
#include "base/loop/deadline.h"

#include <array>
#include <optional>

namespace dtrun::stores {
namespace {

constexpr std::size_t kConnectionsMax = 1'024;  // a rank has one at a time
constexpr std::chrono::seconds kRequestTime{10};
constexpr std::chrono::seconds kAnswerTime{30};
constexpr std::chrono::seconds kLingerTime{1};

}  // namespace

struct HorovodServer::Connection {
    Connection(HorovodServer& owner, tcp::socket taken, HorovodRendezvous::Asker number)
        : server(owner), socket(std::move(taken)), asker(number) {
        server.connections_.emplace(asker, this);
    }
    ~Connection() { server.ended(*this); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    HorovodServer& server;
    tcp::socket socket;
    const HorovodRendezvous::Asker asker;
    HttpRequestReader reader{kValueBytesMax};
    std::array<char, 4096> bytes{};
    std::optional<HttpAnswer> answer;
};

HorovodServer::HorovodServer(asio::any_io_executor executor)
    : executor_(executor),
      acceptor_(executor, "Horovod's store"),
      room_(executor, Timer::time_point::max()),
      tasks_(executor) {}

HorovodServer::~HorovodServer() = default;

Result<std::uint16_t> HorovodServer::listen() {
    auto port = acceptor_.listen();
    if (port) tasks_.spawn(accept_loop());
    return port;
}

void HorovodServer::begin(JobStore& store, std::uint32_t world_size, std::vector<RankSlot> ranks) {
    rendezvous_ = std::make_unique<HorovodRendezvous>(
        store, world_size, std::move(ranks),
        [this](HorovodRendezvous::Asker asker, const HttpAnswer& answer) {
            answered(asker, answer);
        });
    for (const auto& [asker, connection] : connections_) {
        boost::system::error_code ignored;
        connection->socket.close(ignored);
    }
}

std::vector<RankWait> HorovodServer::waits() const {
    return rendezvous_ ? rendezvous_->waits(Clock::now()) : std::vector<RankWait>{};
}

asio::awaitable<void> HorovodServer::accept_loop() {
    for (;;) {
        // More stay in the backlog.
        while (connections_.size() >= kConnectionsMax) co_await room_.async_wait(use_tuple);
        auto socket = co_await acceptor_.next();
        if (!socket) co_return;
        tasks_.spawn(serve(std::move(*socket)));
    }
}

asio::awaitable<void> HorovodServer::serve(tcp::socket socket) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    Connection connection(*this, std::move(socket), ++last_asker_);
    co_await converse(connection);
}

asio::awaitable<void> HorovodServer::converse(Connection& connection) {
    const bool read = co_await read_request(connection);
    if (!connection.socket.is_open()) co_return;
    if (read) {
        HttpRequest& request = connection.reader.request();
        log::debug("Horovod: {} {}, {} bytes", request.method, request.target, request.body.size());
        if (rendezvous_)
            rendezvous_->ask(connection.asker, std::move(request), Clock::now());
        else
            connection.answer = http_answer(503, "no generation of the job has begun\n");
        co_await hold(connection);
    }
    if (connection.answer) co_await answer(connection);
    if (!read) co_await linger(connection);
}

/// \return whether there is one; if not, there may be an answer to what came instead
asio::awaitable<bool> HorovodServer::read_request(Connection& connection) {
    DeadlineGuard guard(connection.socket, after(kRequestTime));
    for (;;) {
        const auto buffer = asio::buffer(connection.bytes);
        const auto [error, size] = co_await connection.socket.async_read_some(buffer, use_tuple);
        if (guard.expired()) {
            connection.answer = http_answer(408, "the request was not complete after 10 s\n");
            co_return false;
        }
        if (error) co_return false;
        const std::string_view bytes(connection.bytes.data(), size);
        const auto complete = connection.reader.feed(bytes);
        if (!complete) {
            connection.answer = complete.error();
            co_return false;
        }
        if (*complete) co_return true;
    }
}

/// Waits until there is an answer, or the client has gone; a client that closes its half of the
/// connection does not wait for an answer either.
asio::awaitable<void> HorovodServer::hold(Connection& connection) {
    while (!connection.answer) {
        const auto buffer = asio::buffer(connection.bytes);
        const auto [error, size] = co_await connection.socket.async_read_some(buffer, use_tuple);
        if (error && !connection.answer) co_return;
    }
}

void HorovodServer::answered(HorovodRendezvous::Asker asker, const HttpAnswer& answer) {
    const auto connection = connections_.find(asker);
    if (connection == connections_.end()) return;
    connection->second->answer = answer;
    boost::system::error_code ignored;
    connection->second->socket.cancel(ignored);
}

/// We close first, so that it is not the client's ports that have to rest for a minute.
asio::awaitable<void> HorovodServer::answer(Connection& connection) {
    tcp::socket& socket = connection.socket;
    const std::string head = http_answer_head(*connection.answer);
    const std::string_view body = connection.answer->bytes();
    const std::array<asio::const_buffer, 2> parts{asio::buffer(head), asio::buffer(body)};
    DeadlineGuard guard(socket, after(kAnswerTime));
    co_await asio::async_write(socket, parts, use_tuple);
}

/// Closing a socket with unread bytes resets the connection, and the client might not see why its
/// request was refused.
asio::awaitable<void> HorovodServer::linger(Connection& connection) {
    boost::system::error_code error;
    connection.socket.shutdown(tcp::socket::shutdown_send, error);
    DeadlineGuard guard(connection.socket, after(kLingerTime));
    while (!error) {
        const auto buffer = asio::buffer(connection.bytes);
        const auto [failed, size] = co_await connection.socket.async_read_some(buffer, use_tuple);
        error = failed;
    }
}

void HorovodServer::ended(Connection& connection) {
    connections_.erase(connection.asker);
    if (rendezvous_) rendezvous_->forget(connection.asker);
    room_.cancel();
}

void HorovodServer::stop() noexcept {
    acceptor_.close();
    tasks_.stop();
}

asio::awaitable<void> HorovodServer::join() {
    return tasks_.join();
}

}  // namespace dtrun::stores
