#include "tests/cluster/support/ranks.h"

#include "base/fd.h"
#include "base/strings.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace dtrun::cluster {
namespace {

namespace fs = std::filesystem;

/// The rest of the line that begins with `key`.
std::string_view line_after(std::string_view text, std::string_view key) {
    const std::size_t at = text.find(key);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = text.substr(at + key.size());
    return rest.substr(0, rest.find('\n'));
}

}  // namespace

bool long_form() {
    return std::getenv("DTRUN_LONG") != nullptr;
}

std::string write_program(const Cluster& cluster, const std::string& name, std::string_view text) {
    const fs::path path = cluster.scratch() / name;
    fs::remove(path);
    std::ofstream(path) << text;
    fs::permissions(path, fs::perms(0755));
    return path;
}

fs::path fresh_directory(const Cluster& cluster, const std::string& name) {
    const fs::path path = cluster.scratch() / name;
    fs::remove_all(path);
    fs::create_directory(path);
    return path;
}

std::string file_text(const fs::path& path) {
    return read_file(path.string()).value_or("");
}

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

std::vector<std::string> sorted_lines(std::string_view text) {
    std::vector<std::string> lines = lines_of(text);
    std::ranges::sort(lines);
    return lines;
}

std::map<int, std::string> by_rank(std::string_view text) {
    std::map<int, std::string> printed;
    for (const std::string& line : lines_of(text)) {
        const std::size_t close = line.find("]<");
        const std::size_t colon = line.find(">:");
        if (!line.starts_with('[') || close == std::string::npos || colon == std::string::npos)
            continue;
        const auto rank = to_int(std::string_view(line).substr(1, close - 1), 0, 1 << 20);
        if (rank) printed[static_cast<int>(*rank)] += line.substr(colon + 2) + "\n";
    }
    return printed;
}

std::string without_news(std::string_view text) {
    std::string rest;
    for (const std::string& line : lines_of(text)) {
        const bool is_news = line.find(" hosts ready after ") != std::string::npos ||
                             line.starts_with("dtrun: waiting for ranks on ");
        if (!line.starts_with("dtrun: ") || !is_news) rest += line + "\n";
    }
    return rest;
}

std::size_t count_of(std::string_view text, std::string_view needle) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(needle, at)) != std::string_view::npos; ++count)
        at += needle.size();
    return count;
}

bool wait_until(const std::function<bool()>& condition, milliseconds timeout) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
}

bool wait_for_count(Running& job, std::string_view text, std::size_t times, milliseconds timeout) {
    const auto enough = [&] { return count_of(job.out_so_far(), text) >= times; };
    wait_until([&] { return job.finished() || enough(); }, timeout);
    const bool is_there = enough();
    if (!is_there) UNSCOPED_INFO(job.out_so_far() << job.err_so_far());
    return is_there;
}

std::string shell_meeting(const Cluster& cluster) {
    const std::string directory = fresh_directory(cluster, "meeting");
    return fmt::format(
        "here() {{ : >{0}/$DTRUN_RANK; }}\n"
        "await() {{ until [ $(ls {0} | wc -l) -ge $1 ]; do sleep 0.02; done; }}\n",
        directory);
}

double seconds_after(std::string_view out, std::string_view word) {
    double time = 0;
    const std::size_t at = out.find(word);
    if (at != std::string_view::npos)
        std::from_chars(out.data() + at + word.size(), out.data() + out.size(), time);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count() - time;
}

bool is_guard(const Process& process) {
    return process.name == "dtrun-guard";
}

bool is_agent(const Process& process) {
    return !is_guard(process) && process.cmdline.find("/dtrun/agent-") != std::string::npos &&
           process.cmdline.find(' ') == std::string::npos;
}

bool is_session(const Process& process) {
    return process.cmdline.starts_with("sshd: ") || process.cmdline.starts_with("sshd-session: ");
}

Process find_process(const Cluster& cluster, std::string_view host,
                     const Cluster::Predicate& fits) {
    for (const Process& process : cluster.processes(host))
        if (fits(process)) return process;
    throw std::runtime_error(fmt::format("no such process on {}:\n{}", host, cluster.leftovers()));
}

long memory_kib(pid_t pid_outside) {
    const std::string status = file_text(fmt::format("/proc/{}/status", pid_outside));
    const std::string text{line_after(status, "VmRSS:")};
    return text.empty() ? 0 : std::stol(text);
}

char state_of(pid_t pid_outside) {
    const std::string stat = file_text(fmt::format("/proc/{}/stat", pid_outside));
    const std::size_t close = stat.rfind(')');
    return close == std::string::npos || close + 2 >= stat.size() ? '\0' : stat[close + 2];
}

fs::path private_ssh_directory(Cluster& cluster, const std::string& name) {
    const fs::path path = cluster.scratch() / name;
    fs::remove_all(path);
    const Finished copied = cluster.run("head", {"cp", "-a", "/root/.ssh", path});
    if (copied.exit_code != 0) throw std::runtime_error(copied.err);
    cluster.bind("head", path, "/root/.ssh");
    return path;
}

}  // namespace dtrun::cluster
