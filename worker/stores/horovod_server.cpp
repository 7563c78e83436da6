#include "worker/stores/horovod_server.h"

#include "base/log.h"
#include "base/loop/deadline.h"
#include "worker/stores/horovod_notice.h"

#include <array>
#include <optional>

namespace dtrun::stores {
namespace {

constexpr std::size_t kConnectionsMax = 1'024;  // a rank has one at a time
constexpr std::chrono::seconds kRequestTime{10};
constexpr std::chrono::seconds kAnswerTime{30};
constexpr std::chrono::seconds kLingerTime{1};
constexpr std::chrono::seconds kNoticeTime{1}, kNoticeInterval{1};

}  // namespace

struct HorovodServer::Connection {
    Connection(HorovodServer& owner, tcp::socket taken, HorovodRendezvous::Asker number,
               std::optional<SlotIndex> asking)
        : server(owner), socket(std::move(taken)), asker(number), process(asking) {
        server.connections_.emplace(asker, this);
    }
    ~Connection() { server.ended(*this); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    HorovodServer& server;
    tcp::socket socket;
    const HorovodRendezvous::Asker asker;
    const std::optional<SlotIndex> process;
    bool at_rendezvous = false;  ///< its request belongs to the present generation
    HttpRequestReader reader{kValueBytesMax};
    std::array<char, 4096> bytes{};
    std::optional<HttpAnswer> answer;
};

HorovodServer::HorovodServer(asio::any_io_executor executor, RejoinQueue& rejoins)
    : executor_(executor),
      rejoins_(
          rejoins,
          [this](HorovodRendezvous::Asker asker, const HttpAnswer& answer) {
              answered(asker, answer);
          },
          [this](HorovodRendezvous::Asker asker, HttpRequest request) {
              pass(asker, std::move(request));
          }),
      room_(executor, Timer::time_point::max()),
      tasks_(executor) {}

HorovodServer::~HorovodServer() = default;

Result<std::uint16_t> HorovodServer::listen() {
    return open(std::nullopt);
}

Result<std::uint16_t> HorovodServer::listen_for(SlotIndex place) {
    ended(place);
    return open(place);
}

Result<std::uint16_t> HorovodServer::open(std::optional<SlotIndex> process) {
    LocalAcceptor acceptor(executor_, "Horovod's store");
    auto port = acceptor.listen();
    if (!port) return port;
    doors_.push_back(std::make_shared<Door>(Door{std::move(acceptor), process}));
    tasks_.spawn(accept_loop(doors_.back()));
    return port;
}

void HorovodServer::ended(SlotIndex place) {
    rejoins_.ended(place);
    for (const auto& door : doors_)
        if (door->process == place) door->acceptor.close();
    std::erase_if(doors_, [place](const auto& door) { return door->process == place; });
}

void HorovodServer::begin(JobStore& store, const Assign& world) {
    ++change_;
    rendezvous_ = std::make_unique<HorovodRendezvous>(
        store, world.world_size, world.ranks,
        [this](HorovodRendezvous::Asker asker, const HttpAnswer& answer) {
            answered(asker, answer);
        });
    for (const auto& [asker, connection] : connections_) {
        if (connection->process && !connection->at_rendezvous) continue;  // it is in the queue
        boost::system::error_code ignored;
        connection->socket.close(ignored);
    }
}

/// A process's first request, whose world has begun.
void HorovodServer::pass(HorovodRendezvous::Asker asker, HttpRequest request) {
    const auto connection = connections_.find(asker);
    if (connection == connections_.end()) return;
    connection->second->at_rendezvous = true;
    rendezvous_->ask(asker, std::move(request), Clock::now());
}

void HorovodServer::notify() {
    ++change_;
    for (const auto& door : doors_)
        if (door->process) tasks_.spawn(notify_process(*door->process, change_));
}

/// A notice may be lost: Horovod makes a new queue for them when it has got a new place. So it is said again
/// until the process asks for one.
asio::awaitable<void> HorovodServer::notify_process(SlotIndex place, std::uint64_t change) {
    Timer timer(executor_);
    while (change == change_) {
        const auto address = rejoins_.notice_for(place);
        if (!address) co_return;
        // Of two notices with the same time the second is ignored.
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        const std::int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
        last_notice_ = std::max(last_notice_ + 1, seconds);
        const auto told =
            co_await deliver_notice(executor_, *address, last_notice_, after(kNoticeTime));
        if (!told) log::info("a notice of changed hosts: {}", told.error().message);
        timer.expires_after(kNoticeInterval);
        co_await timer.async_wait(use_tuple);
    }
}

HorovodRendezvous::Endpoints HorovodServer::endpoints() const {
    return rendezvous_ ? rendezvous_->endpoints() : HorovodRendezvous::Endpoints{};
}

std::vector<RankWait> HorovodServer::waits() const {
    return rendezvous_ ? rendezvous_->waits(Clock::now()) : std::vector<RankWait>{};
}

asio::awaitable<void> HorovodServer::accept_loop(std::shared_ptr<Door> door) {
    for (;;) {
        // More stay in the backlog.
        while (connections_.size() >= kConnectionsMax) co_await room_.async_wait(use_tuple);
        auto socket = co_await door->acceptor.next();
        if (!socket) co_return;
        tasks_.spawn(serve(std::move(*socket), door->process));
    }
}

asio::awaitable<void> HorovodServer::serve(tcp::socket socket, std::optional<SlotIndex> process) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    Connection connection(*this, std::move(socket), ++last_asker_, process);
    co_await converse(connection);
}

asio::awaitable<void> HorovodServer::converse(Connection& connection) {
    const bool read = co_await read_request(connection);
    if (!connection.socket.is_open()) co_return;
    if (read) {
        HttpRequest& request = connection.reader.request();
        log::debug("Horovod: {} {}, {} bytes", request.method, request.target, request.body.size());
        ask(connection);
        co_await hold(connection);
    }
    if (connection.answer) co_await answer(connection);
    if (!read) co_await linger(connection);
}

void HorovodServer::ask(Connection& connection) {
    std::optional<HttpRequest> request(std::move(connection.reader.request()));
    if (connection.process)
        request = rejoins_.ask(*connection.process, connection.asker, std::move(*request));
    if (!request) return;
    connection.at_rendezvous = true;
    if (rendezvous_)
        rendezvous_->ask(connection.asker, std::move(*request), Clock::now());
    else
        connection.answer = http_answer(503, "no generation of the job has begun\n");
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
    rejoins_.forget(connection.asker);
    if (rendezvous_) rendezvous_->forget(connection.asker);
    room_.cancel();
}

void HorovodServer::stop() noexcept {
    for (const auto& door : doors_) door->acceptor.close();
    tasks_.stop();
}

asio::awaitable<void> HorovodServer::join() {
    return tasks_.join();
}

}  // namespace dtrun::stores
