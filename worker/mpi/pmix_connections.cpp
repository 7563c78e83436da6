#include "worker/mpi/pmix_connections.h"

#include "base/fd.h"
#include "base/log.h"

#include <fmt/format.h>
#include <poll.h>
#include <algorithm>
#include <array>
#include <utility>

namespace dtrun::mpi {
namespace {

constexpr std::size_t kEndedWellMax = 256;

}  // namespace

PmixConnections::Connection::Connection(PmixConnections& owner, tcp::socket rank)
    : owner_(owner), rank_(std::move(rank)), libpmix_(owner.executor_) {
    owner_.connections_.insert(this);
}

PmixConnections::Connection::~Connection() {
    owner_.connections_.erase(this);
}

void PmixConnections::Connection::close() {
    boost::system::error_code ignored;
    rank_.close(ignored);
    libpmix_.close(ignored);
}

/// \return what it has sent first, and is still to be read
std::string PmixConnections::Connection::peek() {
    std::array<char, 4096> bytes;
    boost::system::error_code error;
    const std::size_t size = rank_.receive(asio::buffer(bytes), tcp::socket::message_peek, error);
    return error ? std::string() : std::string(bytes.data(), size);
}

/// Whether its process is still there, as far as can be seen.
bool PmixConnections::Connection::is_alive() {
    pollfd end{rank_.native_handle(), POLLRDHUP, 0};
    return rank_.is_open() && ::poll(&end, 1, 0) == 0;
}

PmixConnections::PmixConnections(asio::any_io_executor executor, MpiObserver& observer,
                                 TaskGroup& tasks)
    : executor_(std::move(executor)), observer_(observer), tasks_(tasks) {}

PmixConnections::Shared PmixConnections::add(tcp::socket rank) {
    return std::make_shared<Connection>(*this, std::move(rank));
}

bool PmixConnections::is_second(Connection& newcomer, const PmixEnvironment& environment) {
    newcomer.client_ = environment.client_in(newcomer.peek());
    if (!newcomer.client_) return false;
    const bool second = std::ranges::any_of(connections_, [&](Connection* other) {
        return other != &newcomer && other->client_ == newcomer.client_ && !other->finalized_ &&
               other->is_alive();
    });
    if (!second) return false;
    const std::uint32_t rank = *std::exchange(newcomer.client_, std::nullopt);
    log::info("PMIx: turned away a second program of rank {}", rank);
    if (!std::exchange(told_of_second_, true))
        observer_.mpi_noted(
            Rank{rank},
            fmt::format("a second program of rank {} asks for MPI while the first one uses "
                        "it, and is refused, since only one can be that rank; one that is to "
                        "be alone begins with env {}",
                        rank, kPmixUnset));
    return true;
}

asio::awaitable<void> PmixConnections::pass_on(Shared connection, std::uint16_t port) {
    const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), port);
    const auto [error] = co_await connection->libpmix_.async_connect(endpoint, use_tuple);
    if (error || !connection->is_open()) co_return;
    close_on_exec(connection->libpmix_.native_handle());
    boost::system::error_code ignored;
    connection->rank_.set_option(tcp::no_delay(true), ignored);
    connection->libpmix_.set_option(tcp::no_delay(true), ignored);
    tasks_.spawn(pass_bytes(connection, true));
    co_await pass_bytes(connection, false);
}

asio::awaitable<void> PmixConnections::pass_bytes(Shared connection, bool to_libpmix) {
    tcp::socket& from = to_libpmix ? connection->rank_ : connection->libpmix_;
    tcp::socket& to = to_libpmix ? connection->libpmix_ : connection->rank_;
    std::array<char, 16 << 10> bytes;
    for (;;) {
        const auto buffer = asio::buffer(bytes);
        const auto [error, size] = co_await from.async_read_some(buffer, use_tuple);
        if (error) break;
        const auto part = asio::buffer(bytes.data(), size);
        const auto [failed, written] = co_await asio::async_write(to, part, use_tuple);
        if (failed) co_return connection->close();
    }
    if (to_libpmix) co_return rank_hung_up(connection);
    boost::system::error_code ignored;
    to.shutdown(tcp::socket::shutdown_send, ignored);
}

/// Handles the end of a rank's connection. libpmix takes it for the loss of that rank to all fences
/// that have begun, also if the rank has finalized and a fence is of the next program that ranks
/// run. So ends of finalized ranks' connections are kept from it, until there are too many.
void PmixConnections::rank_hung_up(const Shared& connection) {
    boost::system::error_code ignored;
    if (finalized_ == 0) {
        // What is on its way in the other direction still arrives.
        connection->libpmix_.shutdown(tcp::socket::shutdown_send, ignored);
        return;
    }
    --finalized_;
    connection->rank_.close(ignored);
    ended_well_.push_back(connection);
    if (ended_well_.size() <= kEndedWellMax) return;
    if (const auto oldest = ended_well_.front().lock())
        oldest->libpmix_.shutdown(tcp::socket::shutdown_send, ignored);
    ended_well_.pop_front();
}

void PmixConnections::finalized(std::uint32_t rank) {
    ++finalized_;
    for (Connection* const connection : connections_)
        connection->finalized_ |= connection->client_ == rank;
}

void PmixConnections::close() {
    for (Connection* const connection : connections_) connection->close();
    ended_well_.clear();
    finalized_ = 0;
    told_of_second_ = false;
}

}  // namespace dtrun::mpi
