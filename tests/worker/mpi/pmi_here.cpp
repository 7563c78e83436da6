// Runs programs as the ranks of hosts that are all this machine, each host with its own server of PMI:
//
//     pmi_here [--mode auto|pmix|pmi1|pmi2] [--seconds S] RANKS... -- PROGRAM ARGUMENTS...
//
// "pmi_here 2 1 -- ./hello" has a host with two ranks and one with one. What ranks do with MPI, and
// how they end, comes on standard output behind "mpi: ", at the end. A rank that ends with an error,
// or without MPI_Finalize, ends the fences of the others; MPI_Abort kills all. After S seconds (20)
// what is left is killed. The exit status is that of the first rank that failed, 128 and the signal.
#include "base/log.h"
#include "base/strings.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/worker/mpi/pmi_hosts.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>

using namespace dtrun;

namespace {

struct Options {
    MpiMode mode = MpiMode::automatic;
    int seconds = 20;
    std::vector<std::uint32_t> sizes;
    std::vector<std::string> program;
};

std::optional<Options> parse(const std::vector<std::string>& words) {
    Options options;
    std::size_t i = 0;
    for (; i < words.size() && words[i] != "--"; ++i) {
        if (words[i] == "--mode" && i + 1 < words.size()) {
            const auto mode = mode_of(words[++i]);
            if (!mode) return {};
            options.mode = *mode;
            continue;
        }
        const bool is_time = words[i] == "--seconds" && i + 1 < words.size();
        const auto number = to_int(words[is_time ? ++i : i], 1, 10'000);
        if (!number) return {};
        if (is_time)
            options.seconds = static_cast<int>(*number);
        else
            options.sizes.push_back(static_cast<std::uint32_t>(*number));
    }
    for (++i; i < words.size(); ++i) options.program.push_back(words[i]);
    if (options.sizes.empty() || options.program.empty()) return {};
    return options;
}

/// The ranks' processes.
class Ranks {
public:
    Ranks(asio::io_context& io, PmiHosts& hosts, const Options& options)
        : hosts_(hosts), options_(options), children_(io, SIGCHLD) {
        hosts_.mpi().on_abort = [this](Rank, std::int32_t code) {
            if (status_ == 0) status_ = code;
            kill_all();
        };
    }

    bool start() {
        std::vector<Fd> ends = hosts_.connect();
        std::uint32_t rank = 0;
        for (const std::uint32_t size : options_.sizes)
            for (std::uint32_t local = 0; local < size; ++local, ++rank)
                if (!start(rank, local, size, ends[rank], ends.size())) return false;
        return true;
    }

    asio::awaitable<void> wait() {
        while (!running_.empty()) {
            reap();
            if (!running_.empty()) co_await children_.async_wait(use_tuple);
        }
    }

    void kill_all() {
        for (const auto& [pid, rank] : running_) ::kill(pid, SIGKILL);
    }
    int status() const { return status_; }

private:
    bool start(std::uint32_t rank, std::uint32_t local, std::uint32_t local_size, const Fd& end,
               std::size_t world) {
        std::vector<std::string> env;
        for (char** variable = environ; *variable != nullptr; ++variable) env.push_back(*variable);
        env.push_back(fmt::format("PMI_FD={}", end.get()));
        env.push_back(fmt::format("PMI_RANK={}", rank));
        env.push_back(fmt::format("PMI_SIZE={}", world));
        env.push_back("PMI_SPAWNED=0");
        env.push_back(fmt::format("MPI_LOCALRANKID={}", local));
        env.push_back(fmt::format("MPI_LOCALNRANKS={}", local_size));
        env.push_back(fmt::format("DTRUN_RANK={}", rank));
        std::vector<char*> env_pointers, argv;
        for (std::string& variable : env) env_pointers.push_back(variable.data());
        env_pointers.push_back(nullptr);
        std::vector<std::string> words = options_.program;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, end.get(), end.get());  // clears close-on-exec
        pid_t pid = 0;
        const int error =
            ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), env_pointers.data());
        ::posix_spawn_file_actions_destroy(&actions);
        if (error != 0) return false;
        running_.emplace(pid, rank);
        return true;
    }

    void reap() {
        const auto running = running_;
        for (const auto& [pid, rank] : running) {
            int status = 0;
            if (::waitpid(pid, &status, WNOHANG) != pid) continue;
            running_.erase(pid);
            const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            const auto said = [&](std::string_view what) {
                return std::ranges::count(hosts_.events(), fmt::format("{} {}", rank, what));
            };
            const bool unfinished = said("initialized") > said("finalized");
            hosts_.events().push_back(fmt::format("{} ended {}", rank, code));
            const bool others = !running_.empty() && said("initialized") == 0;
            if (code == 0 && !unfinished && !others) continue;
            if (status_ == 0) status_ = code;
            hosts_.networks().fail(fmt::format("rank {} has ended", rank));
        }
    }

    PmiHosts& hosts_;
    const Options& options_;
    asio::signal_set children_;
    std::map<pid_t, std::uint32_t> running_;
    int status_ = 0;
};

asio::awaitable<void> run(asio::io_context& io, PmiHosts& hosts, Ranks& ranks) {
    co_await ranks.wait();
    // What ranks said last is read before their servers end.
    Timer moment(io, std::chrono::milliseconds(20));
    co_await moment.async_wait(use_tuple);
    hosts.stop();
    co_await hosts.join();
    io.stop();
}

}  // namespace

int main(int argc, char** argv) {
    const char* verbose = std::getenv("PMI_HERE_VERBOSE");
    log::init("pmi_here", verbose != nullptr ? log::Level::debug : log::Level::normal);
    const auto options = parse({argv + 1, argv + argc});
    if (!options) {
        std::fputs("pmi_here [--mode M] [--seconds S] RANKS... -- PROGRAM ARGUMENTS...\n", stderr);
        return 2;
    }
    asio::io_context io(1);
    PmiHosts hosts(io, options->sizes);
    hosts.begin(options->mode);
    Ranks ranks(io, hosts, *options);
    if (!ranks.start()) {
        log::error("cannot start {}", options->program.front());
        ranks.kill_all();
        return 2;
    }
    Timer limit(io, std::chrono::seconds(options->seconds));
    bool late = false;
    limit.async_wait([&](boost::system::error_code error) {
        if (error) return;
        late = true;
        for (std::size_t host = 0; host < hosts.hosts(); ++host)
            for (const RankWait& wait : hosts.server(host).waits())
                hosts.events().push_back(
                    fmt::format("{} waited {} ms for {}", wait.rank, wait.waited_ms, wait.what));
        ranks.kill_all();
    });
    asio::co_spawn(io, run(io, hosts, ranks), [](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
    });
    io.run();
    for (const std::string& event : hosts.events()) fmt::print("mpi: {}\n", event);
    fmt::print("mpi: {} fences of {} bytes\n", hosts.networks().fences_passed,
               hosts.networks().bytes_carried);
    return late ? 124 : ranks.status();
}
