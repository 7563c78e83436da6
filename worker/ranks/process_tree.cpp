#include "worker/ranks/process_tree.h"

#include "base/clock.h"
#include "base/process/subprocess.h"
#include "base/strings.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace dtrun::ranks {
namespace {

struct ProcessStat {
    pid_t pid = 0;
    pid_t parent = 0;
    char state = 0;
};

/// Reads a small file of /proc; empty when the process is gone.
std::string read_proc(pid_t pid, const char* file, std::size_t bytes_max) {
    const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    constexpr std::size_t kUsual = 8u << 10;
    std::string text(std::min(bytes_max, kUsual), '\0');
    std::size_t used = 0;
    for (;;) {
        if (used == text.size() && used < bytes_max) text.resize(std::min(bytes_max, used * 2));
        const ssize_t n = ::read(fd, text.data() + used, text.size() - used);
        if (n <= 0) break;
        used += static_cast<std::size_t>(n);
    }
    ::close(fd);
    text.resize(used);
    return text;
}

std::optional<ProcessStat> read_stat(pid_t pid) {
    const std::string text = read_proc(pid, "stat", 512);
    // The name, in parentheses, may itself hold anything: look for the last one.
    const std::size_t close = text.rfind(')');
    if (close == std::string::npos || close + 4 >= text.size()) return {};
    ProcessStat stat{pid, 0, text[close + 2]};
    std::from_chars(text.data() + close + 4, text.data() + text.size(), stat.parent);
    return stat;
}

/// The entries of a directory of /proc that are numbers.
std::vector<pid_t> pids_in(const std::string& directory) {
    std::vector<pid_t> pids;
    const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir(directory.c_str()), ::closedir);
    if (!proc) return pids;
    while (const dirent* entry = ::readdir(proc.get())) {
        const std::string_view name = entry->d_name;
        pid_t pid = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
        if (error == std::errc{} && end == name.data() + name.size()) pids.push_back(pid);
    }
    return pids;
}

bool is_over(char state) {
    return state == 'Z' || state == 'X';
}

/// Whether Linux was built with a list of the children of each thread, as usual.
bool has_lists_of_children() {
    return ::access(fmt::format("/proc/self/task/{}/children", ::getpid()).c_str(), R_OK) == 0;
}

void add_children(pid_t parent, std::vector<pid_t>& found) {
    for (const pid_t thread : pids_in(fmt::format("/proc/{}/task", parent))) {
        const std::string file = fmt::format("task/{}/children", thread);
        const std::string list = read_proc(parent, file.c_str(), 1u << 20);
        for (const std::string_view word : split(list, ' ')) {
            pid_t pid = 0;
            std::from_chars(word.data(), word.data() + word.size(), pid);
            if (pid > 0) found.push_back(pid);
        }
    }
}

/// Who is below whom. Reads only of those that are asked for, where Linux has lists of children: a large machine has
/// thousands of processes, and few of them are ours.
class Processes {
public:
    Processes() : has_lists_(has_lists_of_children()) {
        if (!has_lists_) read_all();
    }

    std::vector<pid_t> below(pid_t root, std::span<const pid_t> except) const {
        std::vector<pid_t> found;
        std::vector<pid_t> open{root};
        while (!open.empty()) {
            const pid_t parent = open.back();
            open.pop_back();
            for (const pid_t child : children_of(parent)) {
                if (std::ranges::find(except, child) != except.end()) continue;
                open.push_back(child);
                if (lives(child)) found.push_back(child);
            }
        }
        return found;
    }

private:
    void read_all() {
        for (const pid_t pid : pids_in("/proc")) {
            const auto stat = read_stat(pid);
            if (!stat) continue;
            children_[stat->parent].push_back(pid);
            if (is_over(stat->state)) zombies_.insert(pid);
        }
    }

    std::vector<pid_t> children_of(pid_t parent) const {
        if (!has_lists_) {
            const auto found = children_.find(parent);
            return found == children_.end() ? std::vector<pid_t>() : found->second;
        }
        // Who ends while a list is read may hide the one behind it, once.
        std::vector<pid_t> children;
        for (int look = 0; look < 2; ++look) add_children(parent, children);
        std::ranges::sort(children);
        children.erase(std::ranges::unique(children).begin(), children.end());
        return children;
    }

    bool lives(pid_t pid) const {
        if (!has_lists_) return !zombies_.contains(pid);
        const auto stat = read_stat(pid);
        return stat && !is_over(stat->state);
    }

    const bool has_lists_;
    std::unordered_map<pid_t, std::vector<pid_t>> children_;  ///< of all, without lists
    std::unordered_set<pid_t> zombies_;
};

/// Reaps every child that has ended. \return false when there are no children at all
bool reap() {
    for (;;) {
        const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
        if (pid == 0) return true;
        if (pid < 0 && errno != EINTR) return false;
    }
}

/// Stops the tree from the top until nothing new appears in it: a stopped process cannot fork.
void stop_descendants(pid_t root, std::span<const pid_t> except) {
    constexpr int kRoundsMax = 64;
    std::unordered_set<pid_t> stopped;
    for (int round = 0; round < kRoundsMax; ++round) {
        bool found_new = false;
        for (const pid_t pid : descendants(root, except)) {
            if (!stopped.insert(pid).second) continue;
            found_new = true;
            ::kill(pid, SIGSTOP);
        }
        if (!found_new) return;
    }
}

/// \param mask  bits of processors
bool may_use_just(pid_t thread, std::span<const unsigned long> mask) {
    constexpr std::size_t kWordsMax = 1024;  // as many processors as Linux can be built for
    std::vector<unsigned long> has(kWordsMax);
    if (::sched_getaffinity(thread, has.size() * sizeof has[0],
                            reinterpret_cast<cpu_set_t*>(has.data())) != 0)
        return false;
    while (!has.empty() && has.back() == 0) has.pop_back();
    return std::ranges::equal(has, mask);
}

/// This process, and all above it.
std::unordered_set<pid_t> own_line() {
    std::unordered_set<pid_t> line;
    for (pid_t pid = ::getpid(); pid > 0 && line.insert(pid).second;) {
        const auto stat = read_stat(pid);
        pid = stat ? stat->parent : 0;
    }
    return line;
}

}  // namespace

bool is_ending(pid_t pid) {
    constexpr long long kExiting = 4;  // PF_EXITING of Linux, in the seventh field after the name
    const std::string text = read_proc(pid, "stat", 512);
    const std::size_t close = text.rfind(')');
    if (close == std::string::npos || close + 2 >= text.size()) return false;
    const auto fields = split(std::string_view(text).substr(close + 2), ' ');
    if (fields.size() < 7) return false;
    const auto flags = to_int(fields[6], 0, UINT32_MAX);
    return flags && (*flags & kExiting) != 0;
}

bool is_ancestor(pid_t pid) {
    return pid != ::getpid() && own_line().contains(pid);
}

std::vector<pid_t> descendants(pid_t root, std::span<const pid_t> except) {
    return Processes().below(root, except);
}

std::vector<std::vector<pid_t>> descendants_of_each(std::span<const pid_t> roots) {
    const Processes processes;
    std::vector<std::vector<pid_t>> found;
    for (const pid_t root : roots) found.push_back(processes.below(root, {}));
    return found;
}

std::string environment_of(pid_t pid) {
    return '\0' + read_proc(pid, "environ", 4u << 20) + '\0';
}

bool has_variables(const std::string& environment, std::span<const std::string> variables) {
    return std::ranges::all_of(variables, [&environment](const std::string& variable) {
        return environment.contains('\0' + variable + '\0');
    });
}

std::vector<pid_t> processes_of_agent(const std::string& job, std::uint64_t agent) {
    const std::unordered_set<pid_t> spared = own_line();
    const std::string marks[] = {"DTRUN_JOB=" + job, fmt::format("DTRUN_AGENT={}", agent)};
    std::vector<pid_t> found;
    for (const pid_t pid : pids_in("/proc"))
        if (!spared.contains(pid) && has_variables(environment_of(pid), marks))
            found.push_back(pid);
    return found;
}

std::vector<pid_t> kill_descendants(std::span<const pid_t> except) {
    stop_descendants(::getpid(), except);
    const std::vector<pid_t> left = descendants(::getpid(), except);
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    return left;
}

int end_descendants(std::chrono::milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigset_t before;
    sigprocmask(SIG_BLOCK, &child, &before);
    std::unordered_set<pid_t> killed;
    while (reap()) {
        const std::vector<pid_t> left = kill_descendants();
        killed.insert(left.begin(), left.end());
        if (Clock::now() >= deadline) break;
        // An orphan becomes our child without a signal to us; look again soon.
        const timespec soon{0, 10'000'000};
        ::sigtimedwait(&child, nullptr, &soon);
    }
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return static_cast<int>(killed.size());
}

Result<void> bind_process(pid_t process, std::span<const unsigned> cpus,
                          std::span<const unsigned> only_from) {
    const std::vector<unsigned long> mask = cpu_mask(cpus);
    const std::vector<unsigned long> from = cpu_mask(only_from);
    if (mask.empty()) return {};
    for (const pid_t thread : pids_in(fmt::format("/proc/{}/task", process))) {
        if (!from.empty() && !may_use_just(thread, from)) continue;
        if (::sched_setaffinity(thread, mask.size() * sizeof mask[0],
                                reinterpret_cast<const cpu_set_t*>(mask.data())) != 0 &&
            errno != ESRCH)
            return fail(Errc::internal, "cannot bind to processors: {}", std::strerror(errno));
    }
    return {};
}

}  // namespace dtrun::ranks
