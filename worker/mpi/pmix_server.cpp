#include "worker/mpi/pmix_server.h"

#include "base/log.h"
#include "base/loop/deadline.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::mpi {
namespace {

constexpr std::chrono::seconds kLoadTime{30};
constexpr std::chrono::seconds kEndTime{2};

const char* mode_name(MpiMode mode) {
    return mode == MpiMode::pmi1 ? "pmi1" : mode == MpiMode::pmi2 ? "pmi2" : "none";
}

bool serves(MpiMode mode) {
    return mode == MpiMode::automatic || mode == MpiMode::pmix;
}

}  // namespace

PmixServer::PmixServer(asio::any_io_executor executor, MpiNetwork& network, MpiObserver& observer,
                       Options options)
    : executor_(executor),
      network_(network),
      observer_(observer),
      options_(std::move(options)),
      acceptor_(executor, "PMIx"),
      changed_(executor, Timer::time_point::max()),
      connections_(executor, observer, tasks_),
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
    connections_.close();
    mode_ = mode;
    directory_ = std::move(directory);
    told_of_refusal_ = false;
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
    connections_.close();
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
    connections_.close();
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
    const auto connection = connections_.add(std::move(socket));
    // Who says nothing is no rank.
    const auto [silent] = co_await connection->rank().async_wait(tcp::socket::wait_read, use_tuple);
    boost::system::error_code closed;  // meanwhile, by connections_.close()
    if (silent || connection->rank().available(closed) == 0 || !need_process()) co_return;
    while (connection->is_open() && (state_ == State::starting || state_ == State::loaded))
        co_await changed_.async_wait(use_tuple);
    if (!connection->is_open() || state_ != State::serving) co_return;
    if (connections_.is_second(*connection, environment_)) co_return;
    co_await connections_.pass_on(connection, process_port_);
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
            connections_.finalized(ended->rank);
        }
        return requests_->take(frame);
    }
    return {};
}

void PmixServer::send_job() {
    const MpiWorld& world = requests_->world();
    process_->send(pmix_encode(PmixJob{environment_.nspace, world.node_names, world.node_of_rank,
                                       world.node_rank, world.program_ranks}));
}

void PmixServer::set_state(State state) {
    state_ = state;
    changed_.cancel();
}

/// The process cannot serve; there will be no other one in this generation.
void PmixServer::refuse(Error why) {
    refusal_ = std::move(why);
    set_state(State::refused);
    connections_.close();
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

}  // namespace dtrun::mpi
