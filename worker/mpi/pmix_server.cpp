#include "worker/mpi/pmix_server.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/deadline.h"

#include <fmt/format.h>
#include <poll.h>
#include <algorithm>
#include <array>
#include <utility>

namespace dtrun::mpi {
namespace {

constexpr std::chrono::seconds kLoadTime{30};
constexpr std::chrono::seconds kEndTime{2};
constexpr std::size_t kEndedWellMax = 256;

const char* mode_name(MpiMode mode) {
    return mode == MpiMode::pmi1 ? "pmi1" : mode == MpiMode::pmi2 ? "pmi2" : "none";
}

bool serves(MpiMode mode) {
    return mode == MpiMode::automatic || mode == MpiMode::pmix;
}

}  // namespace

/// A rank's connection to us, and ours to libpmix for it.
struct PmixServer::Connection {
    Connection(PmixServer& owner, tcp::socket rank_socket)
        : server(owner), rank(std::move(rank_socket)), libpmix(owner.executor_) {
        server.connections_.insert(this);
    }
    ~Connection() { server.connections_.erase(this); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void close() {
        boost::system::error_code ignored;
        rank.close(ignored);
        libpmix.close(ignored);
    }

    /// What it has sent first, and is still to be read.
    std::string peek() {
        std::array<char, 4096> bytes;
        boost::system::error_code error;
        const std::size_t size =
            rank.receive(asio::buffer(bytes), tcp::socket::message_peek, error);
        return error ? std::string() : std::string(bytes.data(), size);
    }
    /// Whether its process is still there, as far as can be seen.
    bool is_open() {
        pollfd end{rank.native_handle(), POLLRDHUP, 0};
        return rank.is_open() && ::poll(&end, 1, 0) == 0;
    }

    PmixServer& server;
    tcp::socket rank;
    tcp::socket libpmix;
    std::optional<std::uint32_t> client;  ///< who it is; unset: not known, or not passed on yet
    bool finalized = false;
};

PmixServer::PmixServer(asio::any_io_executor executor, MpiNetwork& network, MpiObserver& observer,
                       Options options)
    : executor_(executor),
      network_(network),
      observer_(observer),
      options_(std::move(options)),
      acceptor_(executor, "PMIx"),
      changed_(executor, Timer::time_point::max()),
      tasks_(executor) {}

PmixServer::~PmixServer() = default;

Result<void> PmixServer::open() {
    const auto port = acceptor_.listen();
    if (!port) return std::unexpected(port.error());
    port_ = *port;
    tasks_.spawn(accept_loop());
    return {};
}

asio::awaitable<Result<void>> PmixServer::prepare(std::string directory) {
    abandon_process();
    directory_ = std::move(directory);
    auto started = start_process(true);
    if (!started) co_return started;
    const ProcessPtr process = process_;
    DeadlineGuard guard(changed_, after(options_.load_limit));
    while (process_ == process && state_ == State::starting && !guard.expired())
        co_await changed_.async_wait(use_tuple);
    if (guard.expired()) {
        abandon_process();
        co_return fail(Errc::internal, "PMIx: libpmix was not loaded after {:.3g} s",
                       std::chrono::duration<double>(options_.load_limit).count());
    }
    if (state_ == State::refused) co_return std::unexpected(refusal_);
    co_return Result<void>();
}

void PmixServer::begin(const MpiWorld& world, std::string directory, MpiMode mode) {
    const std::string& name = world.node_names[world.node_rank];
    const bool prepared = name == options_.host_name && state_ == State::loaded && !requests_ &&
                          directory == directory_ && serves(mode);
    if (!prepared) abandon_process();
    close_connections();
    mode_ = mode;
    directory_ = std::move(directory);
    told_of_refusal_ = told_of_second_ = false;
    environment_.nspace = fmt::format("dtrun-{}-{}", world.job, world.generation);
    environment_.port = port_;
    environment_.host_name = name;
    environment_.directory = directory_;
    PmixRequests::Process& process = *this;
    requests_ = std::make_shared<PmixRequests>(executor_, network_, observer_, world, process);
    if (!serves(mode)) return;
    network_.open_mail([requests = std::weak_ptr(requests_)](std::string bytes) {
        if (const auto here = requests.lock()) here->take_mail(bytes);
    });
    if (prepared) send_job();
}

asio::awaitable<void> PmixServer::ready() {
    if (!requests_ || requests_->world().world_size < options_.ranks_worth_waiting) co_return;
    DeadlineGuard guard(changed_, after(kLoadTime));
    while (environment_.server_pid != 0 && state_ == State::loaded && !guard.expired())
        co_await changed_.async_wait(use_tuple);
}

std::vector<std::pair<std::string, std::string>> PmixServer::variables(std::uint32_t rank) const {
    if (mode_ == MpiMode::none) return {};
    return environment_.variables(rank);
}

std::vector<RankWait> PmixServer::waits() const {
    return requests_ ? requests_->waits(Clock::now()) : std::vector<RankWait>{};
}

void PmixServer::end(std::function<void()> gone) {
    requests_.reset();
    close_connections();
    if (!process_) {
        asio::post(executor_, std::move(gone));
        return;
    }
    gone_.push_back(std::move(gone));
    process_->ask_to_end();
    tasks_.spawn(kill_later(process_));
}

void PmixServer::stop() noexcept {
    acceptor_.close();
    requests_.reset();
    gone_.clear();
    if (process_) process_->kill();
    process_.reset();
    close_connections();
    tasks_.stop();
}

asio::awaitable<void> PmixServer::join() {
    return tasks_.join();
}

asio::awaitable<void> PmixServer::accept_loop() {
    for (;;) {
        auto socket = co_await acceptor_.next();
        if (!socket) co_return;
        tasks_.spawn(serve(std::move(*socket)));
    }
}

asio::awaitable<void> PmixServer::serve(tcp::socket socket) {
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    // Who says nothing is no rank.
    const auto [silent] = co_await connection->rank.async_wait(tcp::socket::wait_read, use_tuple);
    boost::system::error_code closed;  // meanwhile, by close_connections()
    if (silent || connection->rank.available(closed) == 0 || !need_process()) co_return;
    while (connection->rank.is_open() && (state_ == State::starting || state_ == State::loaded))
        co_await changed_.async_wait(use_tuple);
    if (!connection->rank.is_open() || state_ != State::serving) co_return;
    if (is_second(*connection)) co_return;
    const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), process_port_);
    const auto [error] = co_await connection->libpmix.async_connect(endpoint, use_tuple);
    if (error || !connection->rank.is_open()) co_return;
    close_on_exec(connection->libpmix.native_handle());
    boost::system::error_code ignored;
    connection->rank.set_option(tcp::no_delay(true), ignored);
    connection->libpmix.set_option(tcp::no_delay(true), ignored);
    tasks_.spawn(pass_on(connection, true));
    co_await pass_on(connection, false);
}

asio::awaitable<void> PmixServer::pass_on(std::shared_ptr<Connection> connection, bool to_server) {
    tcp::socket& from = to_server ? connection->rank : connection->libpmix;
    tcp::socket& to = to_server ? connection->libpmix : connection->rank;
    std::array<char, 16 << 10> bytes;
    for (;;) {
        const auto buffer = asio::buffer(bytes);
        const auto [error, size] = co_await from.async_read_some(buffer, use_tuple);
        if (error) break;
        const auto part = asio::buffer(bytes.data(), size);
        const auto [failed, written] = co_await asio::async_write(to, part, use_tuple);
        if (failed) co_return connection->close();
    }
    if (to_server) co_return rank_hung_up(connection);
    boost::system::error_code ignored;
    to.shutdown(tcp::socket::shutdown_send, ignored);
}

/// Turns away a second program of a rank while the first one uses PMIx. libpmix would take the two
/// for the same client and replace the data of the first, which then crashes. \return whether it
/// was one
bool PmixServer::is_second(Connection& newcomer) {
    newcomer.client = environment_.client_in(newcomer.peek());
    if (!newcomer.client) return false;
    const bool second = std::ranges::any_of(connections_, [&](Connection* other) {
        return other != &newcomer && other->client == newcomer.client && !other->finalized &&
               other->is_open();
    });
    if (!second) return false;
    const std::uint32_t rank = *std::exchange(newcomer.client, std::nullopt);
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

/// Handles the end of a rank's connection. libpmix takes it for the loss of that rank to all fences
/// that have begun, also if the rank has finalized and a fence is of the next program that ranks
/// run. So ends of finalized ranks' connections are kept from it, until there are too many.
void PmixServer::rank_hung_up(const std::shared_ptr<Connection>& connection) {
    boost::system::error_code ignored;
    if (finalized_ == 0) {
        // What is on its way in the other direction still arrives.
        connection->libpmix.shutdown(tcp::socket::shutdown_send, ignored);
        return;
    }
    --finalized_;
    connection->rank.close(ignored);
    ended_well_.push_back(connection);
    if (ended_well_.size() <= kEndedWellMax) return;
    if (const auto oldest = ended_well_.front().lock())
        oldest->libpmix.shutdown(tcp::socket::shutdown_send, ignored);
    ended_well_.pop_front();
}

Result<void> PmixServer::start_process(bool shared_memory) {
    auto started = PmixProcess::start(
        executor_, {.directory = directory_,
                    .host_name = requests_ ? environment_.host_name : options_.host_name,
                    .library = options_.library,
                    .env = options_.env,
                    .shared_memory = shared_memory});
    if (!started) return std::unexpected(started.error());
    process_ = std::move(*started);
    if (options_.started) options_.started(process_->pid());
    set_state(State::starting);
    tasks_.spawn(write(process_));
    tasks_.spawn(read_output(process_));
    tasks_.spawn(attend(process_));
    return {};
}

asio::awaitable<void> PmixServer::write(ProcessPtr process) {
    co_await process->write();
}

asio::awaitable<void> PmixServer::read_output(ProcessPtr process) {
    co_await process->read_output();
}

asio::awaitable<void> PmixServer::attend(ProcessPtr process) {
    for (;;) {
        const auto frame = co_await process->read();
        if (!frame) break;
        if (process != process_) continue;
        if (const auto taken = take(*frame); !taken) {
            log::error("{}", taken.error().message);
            process->kill();
        }
    }
    const bool expected = process->asked_to_end() || state_ == State::refused;
    if (process == process_ && !expected) {
        const std::string how = co_await process->how_it_ended();
        if (process == process_ && requests_ && !requests_->in_use())
            log::warn("PMIx: its server {}; no rank uses it", how);
        else if (process == process_)
            refuse({Errc::internal, fmt::format("PMIx: its server on this host {}", how)});
    }
    if (process != process_) co_return;
    process_.reset();
    environment_.shared_memory = false;
    if (state_ != State::refused) set_state(State::none);
    for (auto& gone : std::exchange(gone_, {})) gone();
}

asio::awaitable<void> PmixServer::kill_later(ProcessPtr process) {
    Timer timer(executor_, kEndTime);
    co_await timer.async_wait(use_tuple);
    if (process_ != process) co_return;
    log::warn("PMIx: its server did not end after {} s; killed", kEndTime.count());
    process->kill();
    timer.expires_after(kEndTime);
    co_await timer.async_wait(use_tuple);
    if (process_ == process) abandon_process();  // nothing can end it
}

Result<void> PmixServer::take(const PmixFrame& frame) {
    if (frame.kind == PmixKind::loaded) {
        const auto loaded = pmix_decode<PmixLoaded>(frame.payload);
        if (!loaded) return std::unexpected(loaded.error());
        log::info("PMIx: libpmix {} ({})", loaded->version, loaded->path);
        if (!requests_) {  // in time for the ranks to be told
            environment_.version = loaded->version;
            environment_.server_pid = process_->pid();
        }
        set_state(State::loaded);
    } else if (frame.kind == PmixKind::serving) {
        const auto serving = pmix_decode<PmixServing>(frame.payload);
        if (!serving) return std::unexpected(serving.error());
        process_port_ = serving->port;
        environment_.shared_memory = environment_.server_pid != 0;
        set_state(State::serving);
    } else if (frame.kind == PmixKind::failed) {
        auto failed = pmix_decode<PmixFailed>(frame.payload);
        if (!failed) return std::unexpected(failed.error());
        refuse({static_cast<Errc>(failed->code), std::move(failed->why)});
    } else if (requests_) {
        if (frame.kind == PmixKind::finalized) {
            const auto ended = pmix_decode<PmixFinalized>(frame.payload);
            if (!ended) return std::unexpected(ended.error());
            ++finalized_;
            for (Connection* const connection : connections_)
                connection->finalized |= connection->client == ended->rank;
        }
        return requests_->take(frame);
    }
    return {};
}

void PmixServer::send_job() {
    const MpiWorld& world = requests_->world();
    process_->send(pmix_encode(
        PmixJob{environment_.nspace, world.node_names, world.node_of_rank, world.node_rank}));
}

void PmixServer::set_state(State state) {
    state_ = state;
    changed_.cancel();
}

/// The process cannot serve; there will be no other one in this generation.
void PmixServer::refuse(Error why) {
    refusal_ = std::move(why);
    set_state(State::refused);
    close_connections();
    if (!requests_) return;  // prepare() tells
    requests_->process_gone();
    if (!std::exchange(told_of_refusal_, true)) observer_.mpi_refused(kNoRank, refusal_.message);
}

bool PmixServer::need_process() {
    if (!requests_ || state_ == State::refused) return false;
    if (!serves(mode_)) {
        refuse(
            {Errc::invalid_input,
             fmt::format("a program asks for PMIx, as Open MPI does, but --mpi {} was given; use "
                         "--mpi pmix, or leave --mpi out",
                         mode_name(mode_))});
        return false;
    }
    if (process_) return true;
    if (const auto started = start_process(false); !started) {
        refuse(started.error());
        return false;
    }
    send_job();
    return true;
}

void PmixServer::to_process(Bytes frame) {
    if (process_) process_->send(std::move(frame));
}

void PmixServer::abandon_process() {
    requests_.reset();
    environment_ = {};
    set_state(State::none);
    if (process_) process_->kill();
    process_.reset();
    for (auto& gone : std::exchange(gone_, {})) asio::post(executor_, std::move(gone));
}

void PmixServer::close_connections() {
    for (Connection* const connection : connections_) connection->close();
    ended_well_.clear();
    finalized_ = 0;
}

}  // namespace dtrun::mpi
