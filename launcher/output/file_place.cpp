#include "launcher/output/file_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dtrun::output {
namespace {

// O_NONBLOCK matters only if somebody put a FIFO there: then an error instead of a wait.
constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
constexpr int kForeignFolder = -1;

/// openat() that follows no link in the last place but of ours and root's. ELOOP: it is another's, and `flags` do
/// not say O_DIRECTORY; ENOTDIR: they do
Fd open_trusted(int folder, const std::string& name, int flags) {
    Fd file(::openat(folder, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file || (errno != ELOOP && errno != ENOTDIR)) return file;
    const int error = errno;
    struct stat found {};
    const bool is_ours = ::fstatat(folder, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
                         S_ISLNK(found.st_mode) &&
                         (found.st_uid == ::geteuid() || found.st_uid == 0);
    errno = error;
    if (is_ours) file.reset(::openat(folder, name.c_str(), flags | O_CLOEXEC, 0666));
    return file;
}

/// \return where to go on, or an error number
std::expected<Fd, int> enter(int folder, const std::string& name, bool make, uid_t owner_of_base) {
    if (make && ::mkdirat(folder, name.c_str(), 0777) != 0 && errno != EEXIST)
        return std::unexpected(errno);
    Fd next = open_trusted(folder, name, O_PATH | O_DIRECTORY);
    struct stat found {};
    if (!next || ::fstat(next.get(), &found) != 0) return std::unexpected(errno);
    const bool is_known =
        found.st_uid == 0 || found.st_uid == ::geteuid() || found.st_uid == owner_of_base;
    if (!is_known) return std::unexpected(kForeignFolder);
    return next;
}

}  // namespace

std::expected<FilePlace, int> place_below(int base, std::string_view path, bool make) {
    struct stat top {};
    FilePlace place{Fd(::openat(base, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)), {}};
    if (!place.folder || ::fstat(base, &top) != 0) return std::unexpected(errno);
    for (std::size_t slash; (slash = path.find('/')) != std::string_view::npos;) {
        const std::string name(path.substr(0, slash));
        path.remove_prefix(slash + 1);
        if (name.empty()) continue;
        auto next = enter(place.folder.get(), name, make, top.st_uid);
        if (!next) return std::unexpected(next.error());
        place.folder = std::move(*next);
    }
    place.name = path;
    return place;
}

Fd open_at(const FilePlace& place, int more_flags) {
    return open_trusted(place.folder.get(), place.name, kAppend | more_flags);
}

std::string why_no_place(int error) {
    if (error == kForeignFolder) return "it is in a folder of another user";
    if (error == ELOOP) return "it is another user's link, which could lead anywhere";
    if (error == ENXIO) return "nobody reads this pipe";
    return std::strerror(error);
}

Result<Fd> open_log_file(const std::string& path) {
    Fd file = open_trusted(AT_FDCWD, path, kAppend);
    if (file) return file;
    return fail(code_of_file_error(errno), "{}: {}", path, why_no_place(errno));
}

Errc code_of_file_error(int error) {
    constexpr std::array kOfMachine{ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM};
    const bool of_machine = std::ranges::find(kOfMachine, error) != kOfMachine.end();
    return of_machine ? Errc::internal : Errc::invalid_input;
}

}  // namespace dtrun::output
