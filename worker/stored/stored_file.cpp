#include "worker/stored/stored_file.h"

#include "base/fd.h"
#include "base/strings.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

namespace dtrun::agent {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr std::string_view kOpenFile = "/proc/self/fd/";

bool is_copied(const std::filesystem::path& file) {
    return file.filename().native().starts_with("agent-");
}

/// The archive of the Python package that was stored with an agent.
std::filesystem::path archive_of(const std::filesystem::path& agent) {
    const std::string name = agent.filename().native();
    return agent.parent_path() / ("package" + name.substr(name.find('-')) + ".tar.gz");
}

/// Waits until a file is on the disk. \return false: it may not be; true also where there is no such file
bool is_on_disk(const std::filesystem::path& file) {
    const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    return fd ? ::fsync(fd.get()) == 0 : errno == ENOENT;
}

/// Has nobody but its owner write to it. \return false: it is not ours, or cannot be looked at
bool take_from_others(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return false;
    return (info.st_mode & kOthersWrite) == 0 || ::chmod(path.c_str(), 0700) == 0;
}

/// How others could have another agent executed.
std::optional<std::string> way_to_change(const std::string& file, const std::string& folder) {
    for (const auto& path : {file, folder})
        if (!take_from_others(path)) return "they may write to " + path;
    return replaceable(folder);
}

}  // namespace

std::optional<std::string> replaceable(const std::string& folder) {
    const std::string parent = std::filesystem::path(folder).parent_path().native();
    struct stat info {};
    if (::stat(parent.c_str(), &info) != 0) return parent + " cannot be looked at";
    if (info.st_uid != 0 && info.st_uid != ::geteuid())
        return fmt::format("{} belongs to user {}", parent, info.st_uid);
    if ((info.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH) return "others may write to " + parent;
    return std::nullopt;
}

Result<void> close_to_others(const std::string& file) {
    const std::filesystem::path path(file);
    struct stat info {};
    if (!is_copied(path) || ::stat(file.c_str(), &info) != 0) return {};
    const std::string folder = path.parent_path().native();
    const auto why = way_to_change(file, folder);
    if (!why) return {};
    const timespec now[] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    if (info.st_mtim.tv_sec == kVouchedTime) ::utimensat(AT_FDCWD, file.c_str(), now, 0);
    return fail(Errc::denied, "others could change the agent in {}: {}", folder, *why);
}

Result<void> vouch_for(const std::string& file) {
    if (auto closed = close_to_others(file); !closed || !is_copied(file)) return closed;
    const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0 || info.st_mtim.tv_sec == kVouchedTime) return {};
    // The time may outlive a crash that the bytes do not. What that leaves of the unpacked package is unpacked anew from the
    // archive, so that has to be whole, too.
    if (!is_on_disk(archive_of(file)) || ::fsync(fd.get()) != 0) return {};
    const timespec times[] = {{0, UTIME_OMIT}, {kVouchedTime, 0}};
    ::futimens(fd.get(), times);  // without it the next log-in looks at modes and bytes again
    return {};
}

void take_name(int& argc, char** argv) {
    if (argc < 3 || std::string_view(argv[1]) != "--as") return;
    const std::string_view opened(argv[0]);
    if (opened.starts_with(kOpenFile))
        if (const auto fd = to_int(opened.substr(kOpenFile.size()), 3, 1 << 20))
            ::close(static_cast<int>(*fd));
    const char* const name = argv[2];
    const char* const base = std::strrchr(name, '/');
    ::prctl(PR_SET_NAME, base == nullptr ? name : base + 1);
    take_words(argc, argv, 0, 2);
}

void take_words(int& argc, char** argv, int first, int count) {
    // They lie one behind the other, so those that follow move to their place.
    char* const place = argv[first];
    char* const end = argv[argc - 1] + std::strlen(argv[argc - 1]) + 1;
    char* const rest = first + count < argc ? argv[first + count] : end;
    const auto taken = rest - place;
    std::memmove(place, rest, static_cast<std::size_t>(end - rest));
    std::memset(end - taken, 0, static_cast<std::size_t>(taken));
    argc -= count;
    for (int i = first; i < argc; ++i) argv[i] = argv[i + count] - taken;
    argv[argc] = nullptr;
}

}  // namespace dtrun::agent
