#include "launcher/control/control_place.h"

#include "base/fd.h"
#include "base/strings.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>

namespace dtrun::control {
namespace {

constexpr std::size_t kJobsNamed = 8;  // in a message
constexpr std::string_view kInHome = "/.cache/dtrun/run-";
constexpr std::size_t kBootDigits = 8;

/// Connects, to see whether anybody listens. \return whose pid that is; nothing: nobody
std::optional<pid_t> listener_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return std::nullopt;
    path.copy(address.sun_path, path.size());
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return 0;
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return errno == ECONNREFUSED ? std::nullopt : std::optional<pid_t>(0);
    ucred peer{};
    socklen_t size = sizeof peer;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return peer.pid;
}

std::string list_of(const std::vector<JobSocket>& jobs) {
    std::vector<std::string> names;
    for (const JobSocket& job : jobs)
        names.push_back(fmt::format("{} ({}pid {})", job.job,
                                    job.name.empty() ? "" : job.name + ", ", job.head));
    return join_names(names, kJobsNamed);
}

}  // namespace

std::vector<std::string> control_folders(std::string_view runtime_dir, std::string_view home) {
    std::vector<std::string> folders;
    folders.push_back(fmt::format("/tmp/dtrun-{}", ::geteuid()));
    // Other machines may have the same home directory; a name would be too long for a socket's path.
    const auto boot = read_file("/proc/sys/kernel/random/boot_id");
    if (home.starts_with('/') && boot)
        folders.push_back(fmt::format("{}{}{}", home, kInHome, boot->substr(0, kBootDigits)));
    const bool is_of_session = runtime_dir.starts_with("/run/user/");
    if (runtime_dir.starts_with('/'))
        folders.insert(is_of_session ? folders.end() : folders.begin(),
                       std::string(runtime_dir) + "/dtrun");
    return folders;
}

Result<void> check_private_folder(const std::string& folder) {
    struct stat info {};
    if (::lstat(folder.c_str(), &info) != 0)
        return fail(errno == ENOENT ? Errc::not_found : Errc::internal, "{}: {}", folder,
                    std::strerror(errno));
    if (!S_ISDIR(info.st_mode)) return fail(Errc::denied, "{}: not a directory", folder);
    if (info.st_uid != ::geteuid())
        return fail(Errc::denied, "{}: belongs to user {}", folder, info.st_uid);
    if ((info.st_mode & 077) != 0)
        return fail(Errc::denied, "{}: others may enter it (mode {:o})", folder,
                    info.st_mode & 07777);
    return {};
}

Result<void> make_private_folder(const std::string& folder) {
    std::error_code error;
    if (folder.find(kInHome) != std::string::npos)
        std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
    if (error) return fail(Errc::internal, "{}: {}", folder, error.message());
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
        return fail(Errc::internal, "{}: {}", folder, std::strerror(errno));
    return check_private_folder(folder);
}

std::string socket_name(std::string_view job, std::string_view name) {
    return fmt::format("{}{}{}{}", job, name.empty() ? "" : ".", name, kSocketSuffix);
}

/// A name without a file: the kernel gives it to one process, and takes it back when that ends.
Result<Fd> hold_name(std::string_view name, const std::vector<JobSocket>& running) {
    const auto taken = std::ranges::find(running, name, &JobSocket::name);
    if (taken != running.end())
        return fail(Errc::invalid_input,
                    "a job named {} runs here: {} (pid {}); end it (dtrun end {}), or take another "
                    "name",
                    name, taken->job, taken->head, name);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string held = fmt::format("dtrun-{}-{}", ::geteuid(), name);
    held.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + held.size());
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0)
        return socket;
    if (errno != EADDRINUSE)
        return fail(Errc::internal, "the name {}: {}", name, std::strerror(errno));
    return fail(Errc::invalid_input, "a job named {} begins or ends here; take another name", name);
}

std::vector<JobSocket> running_jobs(const std::vector<std::string>& folders) {
    std::vector<JobSocket> jobs;
    for (const std::string& folder : folders) {
        if (!check_private_folder(folder)) continue;
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
            const std::string name = entry.path().filename().string();
            if (!name.ends_with(kSocketSuffix)) continue;
            const std::string stem = name.substr(0, name.size() - kSocketSuffix.size());
            const std::size_t dot = std::min(stem.find('.'), stem.size());
            const auto head = listener_of(entry.path().string());
            if (head)
                jobs.push_back({stem.substr(0, dot), entry.path().string(), *head,
                                stem.substr(std::min(dot + 1, stem.size()))});
            else
                ::unlink(entry.path().c_str());
        }
    }
    std::ranges::sort(jobs, {}, &JobSocket::job);
    return jobs;
}

Result<JobSocket> choose_job(const std::vector<JobSocket>& jobs, std::string_view word) {
    if (jobs.empty())
        return fail(Errc::invalid_input,
                    "no job of yours runs here: jobs are found on the machine "
                    "where their dtrun runs, by the same user");
    std::vector<JobSocket> meant;
    for (const JobSocket& job : jobs)
        if (!word.empty() && job.name == word) return job;
    for (const JobSocket& job : jobs)
        if (job.job.starts_with(word)) meant.push_back(job);
    for (const JobSocket& job : jobs)
        if (meant.empty() && word == std::to_string(job.head)) meant.push_back(job);
    if (meant.size() == 1) return meant.front();
    if (meant.empty())
        return fail(Errc::invalid_input, "no job '{}' runs here; there is {}", word, list_of(jobs));
    return fail(
        Errc::invalid_input, "{}; say which: {}",
        word.empty() ? "several jobs run here" : fmt::format("several jobs begin with '{}'", word),
        list_of(meant));
}

}  // namespace dtrun::control
