// Runs programs as the ranks of hosts that are all this machine, each host with its own server of PMIx:
//
//     pmix_here [--mode auto|pmix|pmi1|pmi2] [--prepare] [--library FILE] [--seconds S] [--times N]
//               [--keep] [--first] RANKS... -- PROGRAM ARGUMENTS...
//
// "pmix_here 2 1 -- ./hello" has a host with two ranks and one with one. What ranks do with MPI, and
// how they end, comes on standard output behind "mpi: ", at the end. A rank that ends with an error,
// or without MPI_Finalize, ends the fences of the others, and all ranks are killed unless --keep. With
// --first, only those of the first host are started at all. The job is started N times, one after the
// other. After S seconds (20) what is left is killed, and where its threads were is told. The exit status is
// that of the first rank that failed, 128 and the signal.
#include "base/fd.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/strings.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/worker/mpi/pmix_hosts.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace dtrun;

namespace {

struct Options {
    MpiMode mode = MpiMode::automatic;
    bool prepare = false;
    bool keep = false;
    bool first = false;
    std::string library;
    int seconds = 20;
    int times = 1;
    std::vector<std::uint32_t> sizes;
    std::vector<std::string> program;
};

bool read_number(const std::string& word, int& number) {
    const auto read = to_int(word, 1, 10'000);
    if (read) number = static_cast<int>(*read);
    return read.has_value();
}

std::optional<Options> parse(const std::vector<std::string>& words) {
    Options options;
    std::size_t i = 0;
    for (; i < words.size() && words[i] != "--"; ++i) {
        const std::string& word = words[i];
        if (word == "--prepare") {
            options.prepare = true;
        } else if (word == "--keep") {
            options.keep = true;
        } else if (word == "--first") {
            options.first = true;
        } else if (word.starts_with("--")) {
            if (++i == words.size()) return {};
            const auto mode = mode_of(words[i]);
            if (word == "--mode" && mode)
                options.mode = *mode;
            else if (word == "--library")
                options.library = words[i];
            else if (word == "--seconds"
                         ? !read_number(words[i], options.seconds)
                         : word != "--times" || !read_number(words[i], options.times))
                return {};
        } else {
            int ranks = 0;
            if (!read_number(word, ranks)) return {};
            options.sizes.push_back(static_cast<std::uint32_t>(ranks));
        }
    }
    for (++i; i < words.size(); ++i) options.program.push_back(words[i]);
    if (options.sizes.empty() || options.program.empty()) return {};
    return options;
}

/// The ranks' processes.
class Ranks {
public:
    Ranks(asio::io_context& io, PmixHosts& hosts, const Options& options)
        : hosts_(hosts), options_(options), children_(io, SIGCHLD) {}

    bool start() {
        const std::size_t hosts = options_.first ? 1 : hosts_.size();
        for (std::uint32_t host = 0; host < hosts; ++host)
            for (const std::uint32_t rank : hosts_.world(host).ranks)
                if (!start(rank, host)) return false;
        return true;
    }

    /// Until all ranks have ended.
    asio::awaitable<void> wait() {
        for (reap(); !running_.empty() || unreported_ > 0; reap())
            co_await children_.async_wait(use_tuple);
    }

    const std::map<pid_t, std::uint32_t>& running() const { return running_; }

    void kill_all() {
        for (const auto& [pid, rank] : running_) ::kill(pid, SIGKILL);
    }
    int status() const { return status_; }

private:
    bool start(std::uint32_t rank, std::uint32_t host) {
        auto inherited = environment_here();
        for (const auto& [name, value] : hosts_.server(host).variables(rank))
            inherited.insert_or_assign(name, value);
        std::vector<std::string> env;
        for (const auto& [name, value] : inherited) env.push_back(name + "=" + value);
        // Else hosts that are one machine take each other's shared memory for their own.
        for (const char* const what : {"btl_vader", "osc_rdma", "osc_sm"})
            env.push_back(
                fmt::format("OMPI_MCA_{}_backing_directory={}", what, hosts_.directory(host)));
        env.push_back("OMPI_MCA_btl_tcp_if_include=lo");
        env.push_back("OMPI_MCA_mpi_yield_when_idle=1");
        env.push_back(fmt::format("DTRUN_RANK={}", rank));
        std::vector<char*> env_pointers, argv;
        for (std::string& variable : env) env_pointers.push_back(variable.data());
        env_pointers.push_back(nullptr);
        std::vector<std::string> words = options_.program;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        pid_t pid = 0;
        if (::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), env_pointers.data()) != 0)
            return false;
        running_.emplace(pid, rank);
        return true;
    }

    /// Also of the servers' processes.
    void reap() {
        int status = 0;
        for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
            const auto ended = running_.extract(pid);
            if (ended.empty()) continue;
            ++unreported_;
            // What it did before is read first: it came in before, maybe behind this in the queue.
            asio::post(children_.get_executor(), [this, rank = ended.mapped(), status] {
                --unreported_;
                report(rank, status);
                children_.cancel();
            });
        }
    }

    void report(std::uint32_t rank, int status) {
        auto& events = hosts_.mpi.events;
        const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        const auto said = [&](std::string_view what) {
            return std::ranges::count(events, fmt::format("{} {}", rank, what));
        };
        const bool unfinished = said("initialized") > said("finalized");
        events.push_back(fmt::format("{} ended {}", rank, code));
        if (code == 0 && !unfinished) return;
        if (status_ == 0) status_ = code;
        hosts_.networks().fail(fmt::format("rank {} has ended", rank));
        if (!options_.keep) kill_all();
    }

    PmixHosts& hosts_;
    const Options& options_;
    asio::signal_set children_;
    std::map<pid_t, std::uint32_t> running_;
    int unreported_ = 0;  ///< that have ended
    int status_ = 0;
};

asio::awaitable<void> end(asio::io_context& io, PmixHosts& hosts) {
    Timer gone(io, Timer::time_point::max());
    bool all_gone = false;
    hosts.end([&] {
        all_gone = true;
        gone.cancel();
    });
    while (!all_gone) co_await gone.async_wait(use_tuple);
}

asio::awaitable<void> run(asio::io_context& io, PmixHosts& hosts, Ranks& ranks,
                          const Options& options, const std::string& job) {
    for (int i = 0; i < options.times; ++i) {
        hosts.make_directories();
        if (options.prepare) {
            const auto prepared = co_await hosts.prepare(options.first ? 1 : hosts.size());
            if (!prepared) log::error("{}", prepared.error().message);
        }
        hosts.begin(options.mode, job, static_cast<std::uint64_t>(i) + 1);
        co_await hosts.ready();
        if (!ranks.start()) {
            log::error("cannot start {}", options.program.front());
            ranks.kill_all();
        }
        co_await ranks.wait();
        co_await end(io, hosts);
    }
    hosts.stop();
    co_await hosts.join();
    io.stop();
}

/// Where each thread of a process is: its state, the function of the kernel and the system call in which it waits.
void tell_threads(PmixHosts& hosts, const std::string& who, pid_t pid) {
    std::error_code ignored;
    const std::string tasks = fmt::format("/proc/{}/task", pid);
    for (const auto& task : std::filesystem::directory_iterator(tasks, ignored)) {
        const auto read = [&](const char* file) {
            const auto text = read_file(task.path() / file);
            return std::string(trim(text.value_or("")));
        };
        const std::string stat = read("stat");
        const std::size_t state = stat.rfind(')') + 2;
        hosts.mpi.events.push_back(fmt::format("{}: {}, {} in {}, call {}", who, read("comm"),
                                               stat.substr(std::min(state, stat.size()), 1),
                                               read("wchan"), read("syscall")));
    }
}

void tell_waits(PmixHosts& hosts) {
    for (std::size_t host = 0; host < hosts.size(); ++host)
        for (const RankWait& wait : hosts.server(host).waits())
            hosts.mpi.events.push_back(fmt::format("{} waits for {}", wait.rank, wait.what));
}

}  // namespace

int main(int argc, char** argv) {
    const char* verbose = std::getenv("PMIX_HERE_VERBOSE");
    log::init("pmix_here", verbose != nullptr ? log::Level::debug : log::Level::normal);
    const auto options = parse({argv + 1, argv + argc});
    if (!options) {
        std::fputs("pmix_here: see pmix_here.cpp for what to write\n", stderr);
        return 2;
    }
    asio::io_context io(1);
    PmixHosts hosts(io, options->sizes, options->library);
    if (const auto opened = hosts.open(); !opened) {
        log::error("{}", opened.error().message);
        return 2;
    }
    Ranks ranks(io, hosts, *options);
    Timer limit(io, std::chrono::seconds(options->seconds));
    bool late = false;
    limit.async_wait([&](boost::system::error_code error) {
        if (error) return;
        late = true;
        tell_waits(hosts);
        for (const auto& [pid, rank] : ranks.running())
            tell_threads(hosts, fmt::format("rank {}", rank), pid);
        for (const pid_t pid : hosts.pids) tell_threads(hosts, fmt::format("server {}", pid), pid);
        ranks.kill_all();
    });
    const std::string job = hex(random_job_id());
    asio::co_spawn(io, run(io, hosts, ranks, *options, job), [](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
    });
    io.run();
    for (const std::string& event : hosts.mpi.events) fmt::print("mpi: {}\n", event);
    fmt::print("mpi: {} fences, {} mails, {} servers\n", hosts.networks().fences_passed,
               hosts.networks().mails, hosts.pids.size());
    return late ? 124 : ranks.status();
}
