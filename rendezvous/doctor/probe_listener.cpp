#include "rendezvous/doctor/probe_listener.h"

#include "base/crypto.h"
#include "base/loop/deadline.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dtrun::doctor {
namespace {

constexpr std::chrono::seconds kGreetingLimit{5};
constexpr std::chrono::milliseconds kLateVisitLimit{200};
constexpr std::chrono::seconds kServiceLimit{30};
constexpr std::size_t kChunkBytes = 256u << 10;
constexpr std::uint64_t kBytesMax = 64u << 20;  // of an exchange: nobody asks for more
constexpr std::size_t kVisitsMax = 256;         // at once, of one host
constexpr std::size_t kStrangersMax = 256;  // who knows the token shows it with his first packet
constexpr std::size_t kGreetingBytes = Examine::kTokenBytes + 1 + 8;
constexpr char kVisit = 'v', kExchange = 'x', kTaken = 'k';

/// How far an exchange has come.
struct Traffic {
    std::uint64_t sent = 0, received = 0;
};

std::string greeting(std::string_view token, char wish, std::uint64_t bytes) {
    std::string text(token);
    text += wish;
    for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bytes >> shift);
    return text;
}

bool is_same(std::string_view a, std::string_view b) {
    const auto bytes = [](std::string_view text) {
        return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    };
    return equal_constant_time(bytes(a), bytes(b));
}

std::uint64_t bytes_of(std::string_view greeting) {
    std::uint64_t bytes = 0;
    for (const char c : greeting.substr(Examine::kTokenBytes + 1))
        bytes = bytes << 8 | static_cast<unsigned char>(c);
    return bytes;
}

asio::awaitable<void> send_bytes(tcp::socket& socket, std::uint64_t bytes, Traffic& traffic) {
    static const std::vector<char> kZeros(kChunkBytes);
    while (bytes > 0) {
        const auto buffer =
            asio::buffer(kZeros.data(), std::min<std::uint64_t>(bytes, kChunkBytes));
        const auto [error, n] = co_await socket.async_write_some(buffer, use_tuple);
        if (error) co_return;
        traffic.sent += n;
        bytes -= n;
    }
}

/// \return false: the connection has ended before, or the limit has come
asio::awaitable<bool> take_bytes(tcp::socket& socket, std::uint64_t bytes, Traffic& traffic) {
    std::vector<char> into(kChunkBytes);
    while (bytes > 0) {
        const auto buffer = asio::buffer(into.data(), std::min<std::uint64_t>(bytes, kChunkBytes));
        const auto [error, n] = co_await socket.async_read_some(buffer, use_tuple);
        if (error) co_return false;
        traffic.received += n;
        bytes -= n;
    }
    co_return true;
}

/// Both sides do this.
asio::awaitable<bool> swap_bytes(tcp::socket& socket, std::uint64_t bytes, Traffic& traffic) {
    TaskGroup sender(socket.get_executor());
    sender.spawn(send_bytes(socket, bytes, traffic));
    const bool taken = co_await take_bytes(socket, bytes, traffic);
    co_await sender.join();
    if (!taken) co_return false;
    std::array<char, 1> said{kTaken};
    const auto out = asio::buffer(said);
    const auto [write_error, written] = co_await asio::async_write(socket, out, use_tuple);
    if (write_error) co_return false;
    const auto in = asio::buffer(said);
    const auto [read_error, read] = co_await asio::async_read(socket, in, use_tuple);
    co_return !read_error && said[0] == kTaken;
}

/// Bytes that have gone both ways; of what was sent, those that the other side's machine has.
std::uint64_t both_ways(tcp::socket& socket, const Traffic& traffic) {
    int waiting = 0;
    if (::ioctl(socket.native_handle(), SIOCOUTQ, &waiting) != 0) waiting = 0;
    const std::uint64_t sent =
        traffic.sent - std::min<std::uint64_t>(traffic.sent, static_cast<unsigned>(waiting));
    return std::min(sent, traffic.received);
}

/// Connects to a target and says what is wanted. Nothing: done; else why not.
asio::awaitable<std::optional<std::string>> enter(tcp::socket& socket, ProbeTarget target,
                                                  std::string wish) {
    boost::system::error_code invalid;
    const auto address = asio::ip::make_address(target.address, invalid);
    if (invalid) co_return "'" + target.address + "' is no address";
    const tcp::endpoint endpoint(address, target.port);
    const auto [error] = co_await socket.async_connect(endpoint, use_tuple);
    if (error == asio::error::operation_aborted) co_return "no answer";
    if (error) co_return error.message();
    socket.set_option(tcp::no_delay(true), invalid);
    const auto buffer = asio::buffer(wish);
    const auto [write_error, n] = co_await asio::async_write(socket, buffer, use_tuple);
    if (write_error) co_return write_error.message();
    co_return std::nullopt;
}

/// What was sent and has not arrived is not to fill a slow link any longer.
void drop_unsent(tcp::socket& socket) {
    boost::system::error_code none;
    socket.set_option(asio::socket_base::linger(true, 0), none);
    socket.close(none);
}

asio::awaitable<void> visit_one(std::string token, ProbeTarget target, Deadline deadline,
                                std::optional<std::string>& failure) {
    tcp::socket socket(co_await asio::this_coro::executor);
    DeadlineGuard guard(socket, deadline);
    std::string wish = greeting(token, kVisit, 0);
    failure = co_await enter(socket, std::move(target), std::move(wish));
    if (failure) co_return;
    std::array<char, 1> answer{};
    const auto buffer = asio::buffer(answer);
    const auto [error, n] = co_await asio::async_read(socket, buffer, use_tuple);
    if (guard.expired())
        failure = "it takes connections, but does not answer";
    else if (error || answer[0] != kVisit)
        failure = "somebody else answers there";
}

/// Tries those targets that nobody has tried yet, one after the other.
asio::awaitable<void> visit_some(const std::string& token, const Visit& order, std::size_t& next,
                                 Deadline deadline,
                                 std::vector<std::optional<std::string>>& failures) {
    while (next < failures.size()) {
        const std::size_t i = next++;
        // One that is late for its turn still has a moment.
        const Deadline until = std::max(deadline, after(kLateVisitLimit));
        co_await visit_one(token, order.targets[i], until, failures[i]);
    }
}

}  // namespace

Result<std::unique_ptr<ProbeListener>> ProbeListener::open(asio::any_io_executor executor,
                                                           std::string token) {
    boost::system::error_code error;
    for (const auto& family : {tcp::v6(), tcp::v4()}) {
        tcp::acceptor acceptor(executor);
        acceptor.open(family, error);
        if (!error && family == tcp::v6()) acceptor.set_option(asio::ip::v6_only(false), error);
        if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
        if (!error) acceptor.bind(tcp::endpoint(family, 0), error);
        if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
        if (error) continue;
        std::unique_ptr<ProbeListener> listener(
            new ProbeListener(std::move(acceptor), std::move(token)));
        listener->tasks_.spawn(listener->accept());
        return listener;
    }
    return fail(Errc::internal, "no port can be opened: {}", error.message());
}

ProbeListener::ProbeListener(tcp::acceptor acceptor, std::string token)
    : acceptor_(std::move(acceptor)),
      token_(std::move(token)),
      port_(acceptor_.local_endpoint().port()),
      tasks_(acceptor_.get_executor()) {}

asio::awaitable<void> ProbeListener::accept() {
    for (;;) {
        auto [error, socket] = co_await acceptor_.async_accept(use_tuple);
        if (error == asio::error::operation_aborted) co_return;
        if (error) {  // out of descriptors, perhaps for a moment
            Timer pause(acceptor_.get_executor(), after(std::chrono::milliseconds(20)));
            co_await pause.async_wait(use_tuple);
            continue;
        }
        strangers_.push_back(std::make_shared<tcp::socket>(std::move(socket)));
        tasks_.spawn(serve(strangers_.back()));
        if (strangers_.size() <= kStrangersMax) continue;
        boost::system::error_code none;
        strangers_.front()->cancel(none);
        strangers_.pop_front();
    }
}

asio::awaitable<void> ProbeListener::serve(std::shared_ptr<tcp::socket> socket) {
    tcp::socket& caller = *socket;
    std::array<char, kGreetingBytes> said{};
    {
        DeadlineGuard guard(caller, after(kGreetingLimit));
        const auto buffer = asio::buffer(said);
        const auto [error, n] = co_await asio::async_read(caller, buffer, use_tuple);
        strangers_.remove(socket);
        if (error) co_return;
    }
    const std::string_view greeting(said.data(), said.size());
    if (!is_same(greeting.substr(0, Examine::kTokenBytes), token_)) co_return;
    DeadlineGuard guard(caller, after(kServiceLimit));
    boost::system::error_code none;
    caller.set_option(tcp::no_delay(true), none);
    const std::uint64_t bytes = bytes_of(greeting);
    if (said[Examine::kTokenBytes] == kVisit) {
        const auto buffer = asio::buffer(&kVisit, 1);
        co_await asio::async_write(caller, buffer, use_tuple);
        co_return;
    }
    if (said[Examine::kTokenBytes] != kExchange || bytes > kBytesMax) co_return;
    Traffic traffic;
    bool whole = co_await swap_bytes(caller, bytes / 8, traffic);
    if (whole) whole = co_await swap_bytes(caller, bytes, traffic);
    if (!whole) drop_unsent(caller);
}

asio::awaitable<void> ProbeListener::join() {
    boost::system::error_code none;
    acceptor_.close(none);
    tasks_.stop();
    co_await tasks_.join();
}

asio::awaitable<Visited> visit(std::string token, Visit order) {
    const auto executor = co_await asio::this_coro::executor;
    const Deadline deadline = after(std::chrono::milliseconds(order.limit_ms));
    std::vector<std::optional<std::string>> failures(order.targets.size());
    std::size_t next = 0;
    TaskGroup visits(executor);
    for (std::size_t i = 0; i < std::min(failures.size(), kVisitsMax); ++i)
        visits.spawn(visit_some(token, order, next, deadline, failures));
    co_await visits.join();
    Visited visited;
    for (std::size_t i = 0; i < failures.size(); ++i)
        if (failures[i]) visited.failures.push_back({order.targets[i], *failures[i]});
    co_return visited;
}

asio::awaitable<Speed> test_speed(std::string token, SpeedTest order) {
    tcp::socket socket(co_await asio::this_coro::executor);
    DeadlineGuard guard(socket, after(std::chrono::milliseconds(order.limit_ms)));
    std::string wish = greeting(token, kExchange, order.bytes);
    Speed speed;
    const auto failure = co_await enter(socket, order.target, std::move(wish));
    if (failure) {
        speed.why = *failure;
        co_return speed;
    }
    speed.reached = true;
    Traffic traffic;
    Deadline start = Clock::now();
    const bool warm = co_await swap_bytes(socket, order.bytes / 8, traffic);
    // Where these few take so long already, all of them would only fill the link.
    const bool fast = Clock::now() - start < std::chrono::milliseconds(order.limit_ms) / 4;
    if (warm && fast) {
        traffic = {};
        start = Clock::now();
        co_await swap_bytes(socket, order.bytes, traffic);
    }
    speed.took_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
    speed.bytes = both_ways(socket, traffic);
    if (speed.bytes == 0) speed.why = "it connects, but no data come through";
    drop_unsent(socket);
    co_return speed;
}

}  // namespace dtrun::doctor
