#include "rendezvous/daemon/state_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace dtrun {

Result<void> check_owner(const std::string& directory) {
    struct stat found {};
    if (::stat(directory.c_str(), &found) != 0)
        return fail(Errc::denied, "{}: {}", directory, strerror(errno));
    if (found.st_uid != ::geteuid())
        return fail(Errc::denied, "{}: it belongs to user {}, not to the daemon's, {}", directory,
                    found.st_uid, ::geteuid());
    if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fail(Errc::denied, "{}: others can write to it; chmod 700", directory);
    return {};
}

void sync_parent(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const Fd opened(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened) ::fsync(opened.get());
}

Result<Fd> lock_state(const std::string& directory) {
    const std::string path = directory + "/last-commit";
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file) return fail(Errc::denied, "{}: {}", path, strerror(errno));
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    if (errno == EWOULDBLOCK)
        return fail(Errc::denied, "{}: another dtrun serve uses it", directory);
    return fail(Errc::denied, "{}: {}", path, strerror(errno));
}

}  // namespace dtrun
