#include "tests/cluster/support/cluster.h"

#include "base/strings.h"
#include "tests/cluster/support/ranks.h"
#include "tests/support/skip.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

namespace dtrun::cluster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScript = DTRUN_SOURCE_DIR "/tests/cluster/cluster";
constexpr int kNoCluster = 77;  // exit status of the script, and for CTest: skipped

struct Outcome {
    int exit_code = -1;
    std::string text;
};

Outcome run_here(const std::string& shell_command) {
    std::FILE* pipe = popen(shell_command.c_str(), "re");
    if (pipe == nullptr) throw std::runtime_error("popen failed");
    Outcome outcome;
    char buffer[4096];
    while (const std::size_t got = fread(buffer, 1, sizeof buffer, pipe)) {
        outcome.text.append(buffer, got);
    }
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.text = trim(outcome.text);
    return outcome;
}

std::string read_or_empty(const fs::path& path) {
    return read_file(path.string()).value_or("");
}

fs::path build_under_test() {
    const char* chosen = std::getenv("DTRUN_UNDER_TEST");
    return fs::absolute(chosen != nullptr ? chosen : DTRUN_BINARY_DIR);
}

}  // namespace

void skip(const std::string& why) {
    skip_program(why);
}

Cluster& Cluster::shared(int hosts) {
    static std::unique_ptr<Cluster> cluster;
    if (!cluster || cluster->names.size() < static_cast<std::size_t>(hosts)) {
        cluster.reset();
        cluster = std::make_unique<Cluster>(hosts);
    } else {
        cluster->reset();
    }
    return *cluster;
}

Cluster::Cluster(int hosts) {
    const Outcome up = run_here(fmt::format(
        "{} up {} --owner {} --share {} --share {} 2>&1", shell_quote(kScript), hosts, getpid(),
        shell_quote(DTRUN_SOURCE_DIR), shell_quote(build_under_test().native())));
    if (up.exit_code == kNoCluster) skip(up.text);
    constexpr std::string_view kAnswer = "CLUSTER_STATE=";
    if (up.exit_code != 0 || !up.text.starts_with(kAnswer)) throw std::runtime_error(up.text);
    state_ = up.text.substr(kAnswer.size());
    for (int number = 1; number <= hosts; ++number) names.push_back(fmt::format("s{}", number));
}

Cluster::~Cluster() {
    try {
        script({"down"});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
}

std::string Cluster::host_list(int slots, std::size_t hosts) const {
    std::string list;
    for (std::size_t i = 0; i < (hosts == 0 ? names.size() : hosts); ++i) {
        list += fmt::format("{}{}:{}", i == 0 ? "" : ",", names.at(i), slots);
    }
    return list;
}

std::string Cluster::script(std::vector<std::string> words) const {
    std::string line = fmt::format("CLUSTER_STATE={} {}", shell_quote(state_.native()), kScript);
    for (const std::string& word : words) line += " " + shell_quote(word);
    const Outcome done = run_here(line + " 2>&1");
    if (done.exit_code != 0) throw std::runtime_error(done.text);
    return done.text;
}

Place Cluster::place(std::string_view host) const {
    const fs::path directory = state_ / "hosts" / host;
    const auto pid = to_int(read_or_empty(directory / "pid"), 1, 1 << 30);
    if (!pid) throw std::runtime_error(fmt::format("host {} is crashed or unknown", host));
    return {static_cast<pid_t>(*pid), lines_of(read_or_empty(directory / "cgroups"))};
}

Command Cluster::command(const Place& place, std::vector<std::string> argv,
                         const RunOptions& options) const {
    const Account account = find_account(place, options.user);
    std::map<std::string, std::string> environment = options.env;
    environment.insert({
        {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        {"HOME", account.home},
        {"USER", options.user},
        {"LOGNAME", options.user},
        {"SHELL", "/bin/bash"},
        {"LANG", "C.UTF-8"},
    });
    if (options.terminal) environment.insert({"TERM", "xterm-256color"});
    for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
        if (const char* value = std::getenv(name)) environment.insert({name, value});
    }
    Command command{std::move(argv), {}, options.cwd, account, options.terminal};
    if (command.cwd.empty()) command.cwd = scratch();
    for (const auto& [name, value] : environment) {
        command.environment.push_back(fmt::format("{}={}", name, value));
    }
    return command;
}

Running Cluster::start(std::string_view host, std::vector<std::string> argv,
                       const RunOptions& options) {
    const Place where = place(host);
    return Running(where, command(where, std::move(argv), options), options);
}

Finished Cluster::run(std::string_view host, std::vector<std::string> argv,
                      const RunOptions& options) {
    Running running = start(host, std::move(argv), options);
    running.close_stdin();
    return running.wait(options.timeout);
}

std::string Cluster::program() {
    return build_under_test() / "bin" / "dtrun";
}

bool Cluster::sanitized() {
    static const bool answer = [] {
        const std::string program = read_or_empty(Cluster::program());
        return program.find("__asan_init") != program.npos ||
               program.find("__tsan_init") != program.npos;
    }();
    return answer;
}

Running Cluster::start_dtrun(std::vector<std::string> arguments, const RunOptions& options) {
    arguments.insert(arguments.begin(), program());
    return start("head", std::move(arguments), options);
}

Finished Cluster::dtrun(std::vector<std::string> arguments, const RunOptions& options) {
    Running running = start_dtrun(std::move(arguments), options);
    running.close_stdin();
    return running.wait(options.timeout);
}

std::vector<Process> Cluster::processes(std::string_view host) const {
    if (read_or_empty(state_ / "hosts" / host / "pid").empty()) return {};
    return list_processes(place(host));
}

void Cluster::kill(pid_t pid_outside, int signal) {
    if (::kill(pid_outside, signal) == 0) return;
    throw std::runtime_error(fmt::format("kill {}: {}", pid_outside, std::strerror(errno)));
}

bool Cluster::wait_gone(std::string_view host, const Predicate& fits, milliseconds timeout) const {
    const auto gone = [&] {
        for (const Process& process : processes(host)) {
            if (!fits || fits(process)) return false;
        }
        return true;
    };
    return wait_until(gone, timeout);
}

bool Cluster::wait_all_gone(const Predicate& fits, milliseconds timeout) const {
    const auto end = std::chrono::steady_clock::now() + timeout;
    const auto left = [&] {
        return std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    };
    for (const std::string& name : names) {
        if (!wait_gone(name, fits, left())) return false;
    }
    return wait_gone("head", fits, left());
}

std::string Cluster::leftovers() const {
    return script({"ps"});
}

void Cluster::kill_link(std::string_view host, Cut cut) {
    std::vector<std::string> words{"kill-link", std::string(host)};
    if (cut == Cut::silent) words.push_back("--silent");
    script(std::move(words));
}

void Cluster::heal_link(std::string_view host) {
    script({"heal-link", std::string(host)});
}

void Cluster::sshd_stop(std::string_view host) {
    script({"sshd", std::string(host), "stop"});
}

void Cluster::sshd_start(std::string_view host) {
    script({"sshd", std::string(host), "start"});
}

void Cluster::crash(std::string_view host) {
    script({"crash", std::string(host)});
}

void Cluster::boot(std::string_view host) {
    script({"boot", std::string(host)});
}

void Cluster::freeze(std::string_view host) {
    script({"freeze", std::string(host)});
}

void Cluster::thaw(std::string_view host) {
    script({"thaw", std::string(host)});
}

void Cluster::bind(std::string_view host, const fs::path& source, const fs::path& target) {
    script({"bind", std::string(host), source, target});
}

void Cluster::unbind(std::string_view host, const fs::path& target) {
    script({"unbind", std::string(host), target});
}

void Cluster::limit_home(std::string_view host, std::string_view size, bool noexec) {
    std::vector<std::string> words{"home", std::string(host)};
    if (!size.empty()) words.push_back(fmt::format("size={}", size));
    if (noexec) words.push_back("noexec");
    script(std::move(words));
}

void Cluster::reset() {
    script({"reset"});
}

std::string Cluster::sshd_log(std::string_view host) const {
    return read_or_empty(state_ / "hosts" / host / "sshd.log");
}

}  // namespace dtrun::cluster
