#include "launcher/plan/obeyed_file.h"

#include "base/fd.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace dtrun::plan {
namespace {

/// Whether it is the group that has the user's name and is nobody else's.
bool is_own_group(gid_t id) {
    const passwd* const user = ::getpwuid(::geteuid());
    const group* const found = user != nullptr ? ::getgrgid(id) : nullptr;
    return found != nullptr && std::string_view(found->gr_name) == user->pw_name;
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
    return read_file("/proc/self/fd/" + std::to_string(file.get()));
}

}  // namespace dtrun::plan
