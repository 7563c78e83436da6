#include "base/file_trust.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <cerrno>
#include <cstring>

namespace dtrun {
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

}  // namespace dtrun
