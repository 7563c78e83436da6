#include "tests/worker_client/step_support.h"

#include "tests/support/temp_dir.h"
#include "worker/client/step/key.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <stdexcept>

namespace dtrun::testing {
namespace {

/// Against a hang only: some ranks move a gigabyte, which takes a busy machine with sanitizers minutes.
constexpr int kLineTimeMs = 200'000;
constexpr const char* kCluster = "fake";

// In a rank's process.
int to_test = -1;
int from_test = -1;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

void run_and_wait(const std::vector<std::string>& command) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (status != 0) throw std::runtime_error(command.front() + " failed");
}

}  // namespace

struct FakeStep::Rank {
    pid_t pid = -1;
    int from = -1;
    int to = -1;
    std::string text;

    ~Rank() {
        if (pid > 0) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        if (from >= 0) ::close(from);
        if (to >= 0) ::close(to);
    }
};

FakeStep::FakeStep(std::uint32_t ranks, std::string id, Variables more)
    : variables_([&] {
          const std::size_t dot = id.find('.');
          more.insert({{"SLURM_CLUSTER_NAME", kCluster},
                       {"SLURM_JOB_ID", id.substr(0, dot)},
                       {"SLURM_STEP_ID", id.substr(dot + 1)},
                       {"SLURM_STEP_NUM_TASKS", std::to_string(ranks)},
                       {"SLURM_STEP_NUM_NODES", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", std::to_string(ranks)},
                       {"SLURM_NODEID", "0"},
                       {"SLURM_STEP_NODELIST", "127.0.0.1"},
                       {"SLURMD_NODENAME", "127.0.0.1"}});
          return more;
      }()) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) ranks_.push_back(std::make_unique<Rank>());
}

FakeStep::~FakeStep() = default;

void FakeStep::start(std::uint32_t number, const std::function<void()>& body,
                     const Variables& more) {
    Rank& rank = *ranks_.at(number);
    int up[2], down[2];
    if (::pipe2(up, O_CLOEXEC) != 0 || ::pipe2(down, O_CLOEXEC) != 0)
        throw std::runtime_error("pipe");
    rank.pid = ::fork();
    if (rank.pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        // The test's ends, and those of other ranks, are the test's alone.
        for (int fd = 3; fd < 256; ++fd)
            if (fd != up[1] && fd != down[0]) ::close(fd);
        to_test = up[1];
        from_test = down[0];
        for (const char* name : {"DTRUN_SOCKET", "DTRUN_SERVE", "DTRUN_SECRET_FILE", "DTRUN_MIN_NP",
                                 "DTRUN_MAX_NP", "DTRUN_MUNGE_SOCKET"})
            ::unsetenv(name);
        for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
        ::setenv("SLURM_PROCID", std::to_string(number).c_str(), 1);
        ::setenv("SLURM_LOCALID", std::to_string(number).c_str(), 1);
        for (const auto& [name, value] : more) ::setenv(name.c_str(), value.c_str(), 1);
        int status = 0;
        try {
            body();
        } catch (const std::system_error& error) {
            say(std::to_string(error.code().value()) + ": " + error.what());
            status = 1;
        } catch (const std::exception& error) {
            say(error.what());
            status = 2;
        }
        ::_exit(status);
    }
    ::close(up[1]);
    ::close(down[0]);
    rank.from = up[0];
    rank.to = down[1];
}

void FakeStep::start_all(const std::function<void(std::uint32_t)>& body) {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
        if (ranks_[rank]->pid < 0) start(rank, [&] { body(rank); });
}

void FakeStep::say(const std::string& line) {
    const std::string text = line + "\n";
    if (::write(to_test, text.data(), text.size()) < 0) ::_exit(3);
}

void FakeStep::wait_for_go() {
    char byte = 0;
    if (::read(from_test, &byte, 1) != 1) ::_exit(4);
}

std::string FakeStep::line(std::uint32_t number) {
    Rank& rank = *ranks_.at(number);
    std::size_t end = 0;
    while ((end = rank.text.find('\n')) == rank.text.npos) {
        pollfd entry{rank.from, POLLIN, 0};
        if (::poll(&entry, 1, kLineTimeMs) <= 0) return "";
        char bytes[4096];
        const ssize_t n = ::read(rank.from, bytes, sizeof bytes);
        if (n <= 0) return "";
        rank.text.append(bytes, static_cast<std::size_t>(n));
    }
    const std::string line = rank.text.substr(0, end);
    rank.text.erase(0, end + 1);
    return line;
}

void FakeStep::go(std::uint32_t rank) {
    if (::write(ranks_.at(rank)->to, "!", 1) != 1) throw std::runtime_error("the rank has ended");
}

bool FakeStep::ended_well(std::uint32_t number) {
    while (!line(number).empty()) {
    }
    Rank& rank = *ranks_.at(number);
    int status = -1;
    ::waitpid(std::exchange(rank.pid, -1), &status, 0);
    return status == 0;
}

void FakeStep::kill(std::uint32_t rank) {
    kill(rank, SIGKILL);
    ::waitpid(std::exchange(ranks_.at(rank)->pid, -1), nullptr, 0);
}

void FakeStep::kill(std::uint32_t rank, int signal) {
    ::kill(ranks_.at(rank)->pid, signal);
}

std::vector<std::uint16_t> ports_of_step(const std::string& id) {
    const TempDir dir;
    embedded::SlurmStep step;
    step.cluster = kCluster;
    step.id = id;
    step.secret_file = dir.write("secret", "0123456789abcdef0123456789abcdef", 0600);
    const auto ports = embedded::StepKey::find(step).value().ports();
    return {ports.begin(), ports.end()};
}

class TempDirOfMunged : public TempDir {};

Munged::Munged() {
    constexpr const char* kProgram = "/usr/sbin/munged";
    if (::access(kProgram, X_OK) != 0) return;
    dir_ = std::make_unique<TempDirOfMunged>();
    ::chmod(dir_->path().c_str(), 0755);
    const std::string key = dir_->write("key", std::string(128, 'k'), 0600);
    socket_ = dir_->path() + "/socket";
    // It goes into the background when it is ready.
    run_and_wait({kProgram, "--socket=" + socket_, "--key-file=" + key,
                  "--pid-file=" + dir_->path() + "/pid", "--log-file=" + dir_->path() + "/log",
                  "--seed-file=" + dir_->path() + "/seed", "--num-threads=2"});
}

Munged::~Munged() {
    if (socket_.empty()) return;
    try {
        run_and_wait({"/usr/sbin/munged", "--stop", "--socket=" + socket_});
    } catch (const std::exception&) {
        // it has ended before
    }
}

Stranger::Stranger(std::uint16_t port, std::string says) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in address = loopback(port);
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener, 16) != 0) {
        ::close(listener);
        throw std::runtime_error("listen");
    }
    pid_ = ::fork();
    if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            (void)::send(connection, says.data(), says.size(), MSG_NOSIGNAL);
        }
    }
    ::close(listener);
}

Stranger::~Stranger() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

int connect_to(std::uint16_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        return socket;
    ::close(socket);
    return -1;
}

}  // namespace dtrun::testing
