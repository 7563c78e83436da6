#include "base/file_trust.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <cerrno>
#include <cstring>

namespace dtrun {
namespace {

namespace fs = std::filesystem;

/// Of one file or folder. \param above  it is a folder above that of the code
Result<void> check_unwritable(const fs::path& path, uid_t user, bool above) {
    struct stat file {};
    if (::stat(path.c_str(), &file) != 0)
        return fail(Errc::not_found, "{}: {}", path.string(), std::strerror(errno));
    if (file.st_uid != 0 && file.st_uid != user)
        return fail(Errc::denied, "{} belongs to somebody else, user {}", path.string(),
                    file.st_uid);
    if ((file.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (above && (file.st_mode & S_ISVTX) != 0))
        return {};
    return fail(Errc::denied, "others can write to {0}: chmod go-w {0}", path.string());
}

}  // namespace

Result<FileFacts> facts_of(int fd) {
    struct stat file {};
    struct statfs system {};
    if (::fstat(fd, &file) != 0 || ::fstatfs(fd, &system) != 0)
        return fail(Errc::internal, "{}", std::strerror(errno));
    FileFacts facts;
    facts.owner = file.st_uid;
    facts.group = file.st_gid;
    facts.mode = file.st_mode;
    const bool in_memory = system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
    facts.on_fixed_memory = in_memory && (system.f_flags & ST_RDONLY) != 0;
    return facts;
}

Result<void> check_private(const FileFacts& file, uid_t user, const std::string& path) {
    constexpr mode_t kOthers = 077, kOthersWrite = 022, kMoreThanGroupReads = 037;
    const bool is_roots = file.owner == 0;
    if (!is_roots && file.owner != user)
        return fail(Errc::denied, "{}: belongs to somebody else, user {}", path, file.owner);
    if ((file.mode & kOthers) == 0) return {};
    if (file.is_credential && is_roots && file.group == 0 && (file.mode & kMoreThanGroupReads) == 0)
        return {};
    if (file.on_fixed_memory && is_roots && (file.mode & kOthersWrite) == 0) return {};
    return fail(Errc::denied,
                "{}: others can read it; chmod 600 {}, or hand it over already open (--secret-fd "
                "or DTRUN_SECRET_FD, such as 3 with 3< {})",
                path, path, path);
}

Result<void> check_code(const fs::path& path, uid_t user) {
    std::error_code gone;
    const fs::path real = fs::canonical(path, gone);
    if (gone) return fail(Errc::not_found, "{}: {}", path.string(), gone.message());
    // Whoever can change a link on the way decides, too.
    for (const fs::path& way : {real, path}) {
        auto checked = check_unwritable(way, user, false);
        bool above = false;
        for (fs::path folder = way; checked && folder.has_relative_path(); above = true) {
            folder = folder.parent_path();
            checked = check_unwritable(folder, user, above);
        }
        if (!checked) return checked;
    }
    return {};
}

}  // namespace dtrun
