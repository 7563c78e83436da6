#include "launcher/plan/obeyed_file.h"

#include "base/fd.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstddef>

namespace dtrun::plan {
namespace {

/// Whether it is the group that has the user's name and nobody else in it, as many systems make one for each user
/// and let it write by default.
bool is_own_group(gid_t id) {
    const passwd* const user = ::getpwuid(::geteuid());
    if (user == nullptr) return false;
    const std::string name = user->pw_name;
    const group* const found = ::getgrgid(id);
    if (found == nullptr || name != found->gr_name) return false;
    for (char* const* member = found->gr_mem; *member != nullptr; ++member)
        if (name != *member) return false;
    return true;
}

}  // namespace

Result<std::string> read_obeyed_file(const std::string& path) {
    // It is held, so that what is looked at is what is read.
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    struct stat found {};
    if (!file || ::fstat(file.get(), &found) != 0) return read_file(path);  // says why
    if (found.st_uid != ::geteuid() && found.st_uid != 0)
        return fail(Errc::denied, "{}: belongs to user {}", path, found.st_uid);
    const bool others_write = (found.st_mode & S_IWOTH) != 0 ||
                              ((found.st_mode & S_IWGRP) != 0 && !is_own_group(found.st_gid));
    if (others_write) return fail(Errc::denied, "{}: others can write to it; chmod go-w", path);
    constexpr std::size_t kBytesMax = 1u << 20;
    return read_all(file.get(), path, kBytesMax);
}

}  // namespace dtrun::plan
