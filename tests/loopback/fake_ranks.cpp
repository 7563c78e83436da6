#include "tests/loopback/fake_ranks.h"

#include "base/fd.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/worker/stores/tcp_store_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <stdexcept>

namespace dtrun::loopback {
namespace {

constexpr std::chrono::seconds kMissing{1};  // until a rank looks again whether others have come

std::string value_of(const std::vector<std::string>& env, std::string_view name) {
    for (const std::string& variable : env)
        if (variable.starts_with(name) && variable[name.size()] == '=')
            return variable.substr(name.size() + 1);
    return {};
}

std::string horovod_put(std::string_view key, std::string_view value) {
    return fmt::format("PUT /global/{} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", key, value.size(),
                       value);
}

std::string torch_key(std::uint32_t rank) {
    return fmt::format("/default_pg/0//cpu//0/rank_{}", rank);
}

/// Says where a rank is, and waits until all that it counts have said it.
std::string torch_meeting(pid_t pid, std::uint32_t rank, std::uint32_t counts) {
    constexpr int kSet = 1, kWait = 6, kPing = 13;
    std::string bytes = torch::kValidate + torch::op(kPing) +
                        torch::number(static_cast<std::uint32_t>(pid)) +
                        torch::op(kSet, {torch_key(rank), "here"}) + torch::op(kWait) +
                        torch::number<std::uint64_t>(counts);
    for (std::uint32_t each = 0; each < counts; ++each) bytes += torch::text(torch_key(each));
    return bytes;
}

}  // namespace

FakeRanks::FakeRanks(asio::any_io_executor executor, std::mt19937& random,
                     std::function<RankScript(const Request&)> script_of,
                     std::function<void(const Exited&, const Process&)> exited,
                     std::function<void(const Welcome&)> welcomed,
                     std::function<bool(std::uint64_t)> is_complete)
    : executor_(executor),
      random_(random),
      script_of_(std::move(script_of)),
      exited_(std::move(exited)),
      welcomed_(std::move(welcomed)),
      is_complete_(std::move(is_complete)),
      grace_(executor),
      tasks_(executor) {}

FakeRanks::~FakeRanks() = default;

void FakeRanks::start(const Request& request, std::function<void(Start)> started) {
    for (const auto& [pid, other] : ranks_)
        if (other.place == request.place)
            throw std::runtime_error(fmt::format("two processes in place {}", request.place));
    const pid_t pid = ++last_pid_;
    Running rank;
    rank.generation = request.generation;
    rank.rank = request.rank;
    rank.place = request.place;
    rank.script = script_of_(request);
    rank.started = Clock::now();
    rank.agent = value_of(request.command.env, "DTRUN_AGENT");
    Start start;
    start.rank = request.rank;
    start.place = request.place;
    if (rank.script.not_executable) {
        start.executed = fail(Errc::denied, "cannot execute it");
        return asio::post(executor_, [started, made = std::make_shared<Start>(std::move(start)),
                                      alive = std::weak_ptr(alive_)] {
            if (alive.lock()) started(std::move(*made));
        });
    }
    start.pid = pid;
    for (const auto& [ours, theirs] :
         {std::pair{&rank.out, &start.out}, std::pair{&rank.err, &start.err}}) {
        Pipe pipe = make_pipe().value();
        ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
        *ours = std::move(pipe.write);
        *theirs = std::move(pipe.read);
    }
    write_output(rank);
    const auto life = rank.script.life;
    const int code = rank.script.code;
    const int signal = rank.script.signal;
    const bool meets = rank.script.meets != RankScript::Meets::nobody;
    if (rank.script.elastic) {
        Hello hello;
        hello.generation = request.generation;
        hello.rank = request.rank;
        hello.elastic = true;
        tasks_.spawn(be_elastic(pid, hello, rank.script.import,
                                value_of(request.command.env, "DTRUN_SOCKET")));
    }
    ranks_.emplace(pid, std::move(rank));
    if (meets) tasks_.spawn(meet(pid, request.command.env));
    // Programs are executed after a moment, one sooner than the other.
    const std::chrono::microseconds delay(random_() % 3'000);
    auto executed = std::make_shared<Timer>(executor_, delay);
    executed->async_wait([this, executed, started, life, code, signal, pid, meets,
                          alive = std::weak_ptr(alive_),
                          made = std::make_shared<Start>(std::move(start))](auto) {
        if (!alive.lock() || vanished_) return;
        started(std::move(*made));
        // A stop_all() before this has already decided how the rank ends.
        if (!meets && ranks_.contains(pid) && ranks_[pid].sent_signal == 0)
            end_after(pid, life, code, signal);
    });
}

void FakeRanks::write_output(Running& rank) {
    std::string text;
    while (text.size() < rank.script.output_bytes)
        text += fmt::format("rank {} says this\n", rank.rank);
    if (!text.empty()) static_cast<void>(!::write(rank.out.get(), text.data(), text.size()));
}

std::vector<ranks::RunningRank> FakeRanks::running_ranks() const {
    std::vector<ranks::RunningRank> running;
    for (const auto& [pid, rank] : ranks_) running.push_back({rank.rank, pid, rank.place});
    std::ranges::sort(running, {}, &ranks::RunningRank::rank);
    return running;
}

void FakeRanks::end_after(pid_t pid, std::chrono::nanoseconds delay, int code, int signal) {
    Running& rank = ranks_[pid];
    rank.ends = std::make_unique<Timer>(executor_, delay);
    rank.ends->async_wait([this, pid, code, signal, alive = std::weak_ptr(alive_)](auto error) {
        if (alive.lock() && !error) ended(pid, code, signal);
    });
}

/// A process says hello when it has imported what it wants, and hears of changes from then on.
asio::awaitable<void> FakeRanks::be_elastic(pid_t pid, Hello hello,
                                            std::chrono::milliseconds import, std::string socket) {
    Timer timer(executor_, import);
    co_await timer.async_wait(use_tuple);
    if (!ranks_.contains(pid) || tasks_.stopping()) co_return;
    Unix::socket to_agent(executor_);
    boost::system::error_code error;
    to_agent.connect(Unix::endpoint(std::string(1, '\0') + socket.substr(1)), error);
    if (error) co_return;
    const auto link = std::make_shared<Link>(std::move(to_agent));
    ranks_.at(pid).link = link;
    TaskGroup writer(executor_);
    writer.spawn(link->run_writer());
    link->send(encode(hello));
    const std::function<Result<void>(const FrameView&)> handle =
        [this, pid](const FrameView& frame) { return told(pid, frame); };
    co_await link->serve(handle);
    link->close();
    co_await writer.join();
}

Result<void> FakeRanks::told(pid_t pid, const FrameView& frame) {
    const auto found = ranks_.find(pid);
    if (found == ranks_.end()) return {};
    Running& rank = found->second;
    if (frame.type == FrameType::welcome) {
        const auto welcome = decode<Welcome>(frame.payload);
        if (!welcome) return std::unexpected(welcome.error());
        rank.generation = welcome->generation;
        rank.rank = welcome->rank;
        rank.had_place = rank.has_place = true;
        welcomed_(*welcome);
    } else if (frame.type == FrameType::event && rank.has_place) {
        const auto event = decode<RankEvent>(frame.payload);
        if (!event) return std::unexpected(event.error());
        if (event->kind != RankEvent::Kind::membership || rank.script.never_asks) return {};
        ask(pid);
    }
    return {};
}

/// It leaves its world, to ask for a place in the next one.
void FakeRanks::ask(pid_t pid) {
    Running& rank = ranks_.at(pid);
    rank.has_place = false;
    tasks_.spawn(rejoin(pid, rank.generation));
}

/// Asks for a place once the step under way is done.
asio::awaitable<void> FakeRanks::rejoin(pid_t pid, std::uint64_t generation) {
    Timer timer(executor_, std::chrono::microseconds(random_() % 50'000));
    co_await timer.async_wait(use_tuple);
    const auto found = ranks_.find(pid);
    if (found != ranks_.end()) found->second.link->send(encode(Rejoin{generation}));
}

/// \return what the store on this host says, so many bytes at least; empty if it hangs up
asio::awaitable<std::string> FakeRanks::ask_store(pid_t pid, std::uint16_t port,
                                                  std::string request, std::size_t bytes_min) {
    const auto socket = std::make_shared<tcp::socket>(executor_);
    boost::system::error_code error;
    socket->connect({asio::ip::address_v4::loopback(), port}, error);
    ranks_.at(pid).store = socket;
    const auto bytes = asio::buffer(request);
    co_await asio::async_write(*socket, bytes, use_tuple);
    std::string answer;
    const auto room = asio::dynamic_buffer(answer);
    const auto enough = asio::transfer_at_least(bytes_min);
    const auto [failed, size] = co_await asio::async_read(*socket, room, enough, use_tuple);
    co_return failed ? std::string() : answer;
}

/// What dist.init_process_group() and hvd.init() say to the stores of their frameworks.
asio::awaitable<void> FakeRanks::meet(pid_t pid, std::vector<std::string> env) {
    const RankScript script = ranks_.at(pid).script;
    Timer timer(executor_, script.import);
    co_await timer.async_wait(use_tuple);
    if (!ranks_.contains(pid) || tasks_.stopping()) co_return;
    const bool torch = script.meets == RankScript::Meets::torch;
    const std::uint32_t rank = std::to_underlying(ranks_.at(pid).rank);
    const auto number_in = [&env](std::string_view name) {
        return static_cast<std::uint32_t>(std::stoul(value_of(env, name)));
    };
    const std::uint32_t size = number_in(torch ? "WORLD_SIZE" : "HOROVOD_SIZE");
    const std::uint32_t counts = script.counts == 0 ? size : script.counts;
    const auto port = static_cast<std::uint16_t>(
        number_in(torch ? "MASTER_PORT" : "HOROVOD_GLOO_RENDEZVOUS_PORT"));
    std::string request;
    if (torch)
        request = torch_meeting(pid, rank, counts);
    else
        request = horovod_put(fmt::format("rank_{}", rank), "here");
    const std::size_t answer_bytes = torch ? 5 : 1;  // of PING and of WAIT
    const std::string met = co_await ask_store(pid, port, std::move(request), answer_bytes);
    if (!ranks_.contains(pid) || met.empty()) co_return;
    bool refused = false;
    if (!torch) {  // Gloo's address for each other rank
        constexpr std::size_t kAddressBytes = 136;
        request = horovod_put(std::to_string(rank), std::string((counts - 1) * kAddressBytes, 'a'));
        const std::string said = co_await ask_store(pid, port, std::move(request), 1);
        refused = said.find(" 200 ") == std::string::npos;
    }
    const auto found = ranks_.find(pid);
    if (found == ranks_.end() || found->second.sent_signal != 0) co_return;
    if (refused) co_return end_after(pid, script.reaction, 0, SIGABRT);
    end_after(pid, script.life, script.code, script.signal);
}

bool FakeRanks::may_end(const Running& rank) const {
    return !rank.script.elastic || (rank.has_place && is_complete_(rank.generation));
}

void FakeRanks::hang_up(Running& rank) {
    if (rank.link) rank.link->close();
    boost::system::error_code ignored;
    if (rank.store) rank.store->close(ignored);
}

void FakeRanks::ended(pid_t pid, int code, int signal) {
    const auto found = ranks_.find(pid);
    if (found == ranks_.end()) return;
    if (signal == 0 && code == 0 && found->second.sent_signal == 0 && !may_end(found->second))
        return end_after(pid, kMissing, code, signal);
    hang_up(found->second);
    Exited exited;
    exited.generation = found->second.generation;
    exited.rank = found->second.rank;
    exited.place = found->second.place;
    exited.pid = pid;
    exited.code = code;
    exited.signal = signal;
    exited.sent_signal = found->second.sent_signal;
    exited.ran_ns = (Clock::now() - found->second.started).count();
    orphans_ += found->second.script.orphans;
    const Process process = describe(found->second);
    ranks_.erase(found);
    exited_(exited, process);
    look_whether_gone();
}

void FakeRanks::signal(int signal) {
    if (signal == kWarnSignal)
        for (auto& [pid, rank] : ranks_)
            if (rank.script.saves && rank.sent_signal == 0 && !std::exchange(rank.saves, true))
                end_after(pid, *rank.script.saves, 0, 0);
    if (signal != SIGTERM && signal != SIGINT) return;
    for (auto& [pid, rank] : ranks_)
        if (!rank.script.ignores_signals) end_after(pid, rank.script.reaction, 0, signal);
}

void FakeRanks::end(std::uint64_t generation, Rank which, int code) {
    for (auto& [pid, rank] : ranks_)
        if (rank.generation == generation && rank.rank == which && rank.sent_signal == 0)
            end_after(pid, std::chrono::milliseconds(1), code, 0);
}

void FakeRanks::renumber(SlotIndex place, std::uint64_t generation, Rank rank) {
    for (auto& [pid, running] : ranks_)
        if (running.place == place) {
            running.generation = generation;
            running.rank = rank;
        }
}

void FakeRanks::end(SlotIndex place, int signal) {
    for (auto& [pid, running] : ranks_) {
        if (running.place != place) continue;
        running.sent_signal = signal;
        end_after(pid, running.script.reaction, 0, signal);
    }
}

void FakeRanks::kill(std::uint64_t generation, Rank which) {
    for (auto& [pid, rank] : ranks_)
        if (rank.generation == generation && rank.rank == which)
            end_after(pid, std::chrono::milliseconds(1), 0, SIGKILL);
}

void FakeRanks::kill_at(SlotIndex place) {
    for (auto& [pid, rank] : ranks_)
        if (rank.place == place && rank.sent_signal == 0)
            end_after(pid, std::chrono::milliseconds(0), 0, SIGKILL);
}

void FakeRanks::ask_at(SlotIndex place) {
    for (auto& [pid, rank] : ranks_)
        if (rank.place == place && rank.has_place && rank.sent_signal == 0) ask(pid);
}

std::vector<FakeRanks::Process> FakeRanks::processes() const {
    std::vector<Process> processes;
    for (const auto& [pid, rank] : ranks_) processes.push_back(describe(rank));
    return processes;
}

FakeRanks::Process FakeRanks::describe(const Running& rank) {
    const bool learns = rank.script.elastic;  // others are what they were started as
    return {rank.place, rank.generation, rank.rank, !learns || rank.had_place,
            !learns || rank.has_place};
}

int FakeRanks::sweep(std::uint64_t agent) {
    int killed = 0;
    for (auto& [pid, rank] : ranks_) {
        if (rank.agent != std::to_string(agent)) continue;
        end_after(pid, std::chrono::milliseconds(0), 0, SIGKILL);
        ++killed;
    }
    return killed;
}

void FakeRanks::stop_all(int signal, std::chrono::milliseconds grace,
                         std::function<void(int)> gone) {
    gone_ = std::move(gone);
    for (auto& [pid, rank] : ranks_) {
        saves_cut_short_ += std::exchange(rank.saves, false) ? 1 : 0;
        rank.sent_signal = signal;
        if (!rank.script.ignores_signals) end_after(pid, rank.script.reaction, 0, signal);
    }
    grace_.expires_after(grace);
    grace_.async_wait([this, alive = std::weak_ptr(alive_)](auto error) {
        if (!alive.lock() || error) return;
        for (auto& [pid, rank] : ranks_) {
            rank.sent_signal = SIGKILL;
            end_after(pid, std::chrono::milliseconds(1), 0, SIGKILL);
        }
    });
    look_whether_gone();
}

void FakeRanks::look_whether_gone() {
    if (!gone_ || !ranks_.empty()) return;
    grace_.cancel();
    asio::post(executor_, [this, alive = std::weak_ptr(alive_)] {
        if (!alive.lock() || !gone_ || !ranks_.empty()) return;
        std::exchange(gone_, nullptr)(std::exchange(orphans_, 0));
    });
}

void FakeRanks::vanish() {
    vanished_ = true;
    for (auto& [pid, rank] : ranks_) hang_up(rank);
    ranks_.clear();
    gone_ = nullptr;
}

asio::awaitable<void> FakeRanks::join() {
    for (auto& [pid, rank] : ranks_) hang_up(rank);
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::loopback
