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

bool is_trusted(const struct stat& link) {
    return link.st_uid == ::geteuid() || link.st_uid == 0;
}

/// openat() that follows no link in the last place but of ours and root's. ELOOP: it is another's
Fd open_trusted(int folder, const std::string& name, int flags) {
    Fd file(::openat(folder, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file || errno != ELOOP) return file;
    struct stat found {};
    const bool is_ours = ::fstatat(folder, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
                         S_ISLNK(found.st_mode) && is_trusted(found);
    errno = ELOOP;
    if (is_ours) file.reset(::openat(folder, name.c_str(), flags | O_CLOEXEC, 0666));
    return file;
}

/// Where to go on.
std::expected<Fd, NoPlace> enter(int folder, const std::string& name, bool make,
                                 uid_t owner_of_base, uid_t& us) {
    const bool is_made = make && ::mkdirat(folder, name.c_str(), 0777) == 0;
    if (make && !is_made && errno != EEXIST) return std::unexpected(no_place(errno));
    Fd next(::openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat found {};
    if (!next || ::fstat(next.get(), &found) != 0) return std::unexpected(no_place(errno));
    if (S_ISLNK(found.st_mode)) {
        if (!is_trusted(found)) return std::unexpected(no_place(ELOOP));
        next.reset(::openat(folder, name.c_str(), O_PATH | O_CLOEXEC));
        if (!next || ::fstat(next.get(), &found) != 0) return std::unexpected(no_place(errno));
    }
    if (!S_ISDIR(found.st_mode)) return std::unexpected(no_place(ENOTDIR));
    if (is_made) us = found.st_uid;
    const bool is_known = found.st_uid == 0 || found.st_uid == us || found.st_uid == ::geteuid() ||
                          found.st_uid == owner_of_base;
    if (is_known) return next;
    return std::unexpected(
        NoPlace{EACCES, fmt::format("its folder {} belongs to user {}", name, found.st_uid)});
}

}  // namespace

std::expected<FilePlace, NoPlace> place_below(int base, std::string_view path, bool make,
                                              uid_t& us) {
    struct stat top {};
    FilePlace place{Fd(::openat(base, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)), {}};
    if (!place.folder || ::fstat(base, &top) != 0) return std::unexpected(no_place(errno));
    for (std::size_t slash; (slash = path.find('/')) != std::string_view::npos;) {
        const std::string name(path.substr(0, slash));
        path.remove_prefix(slash + 1);
        if (name.empty()) continue;
        auto next = enter(place.folder.get(), name, make, top.st_uid, us);
        if (!next) return std::unexpected(next.error());
        place.folder = std::move(*next);
    }
    place.name = path;
    return place;
}

Fd open_at(const FilePlace& place, int more_flags) {
    return open_trusted(place.folder.get(), place.name, kAppend | more_flags);
}

NoPlace no_place(int error) {
    if (error == ELOOP) return {error, "it is another user's link, which could lead anywhere"};
    if (error == ENXIO) return {error, "nobody reads this pipe"};
    return {error, std::strerror(error)};
}

Result<Fd> open_log_file(const std::string& path) {
    Fd file = open_trusted(AT_FDCWD, path, kAppend);
    if (file) return file;
    const NoPlace none = no_place(errno);
    return fail(code_of_file_error(none.error), "{}: {}", path, none.why);
}

Errc code_of_file_error(int error) {
    constexpr std::array kOfMachine{ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM};
    const bool of_machine = std::ranges::find(kOfMachine, error) != kOfMachine.end();
    return of_machine ? Errc::internal : Errc::invalid_input;
}

}  // namespace dtrun::output
