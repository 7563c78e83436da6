#include "rendezvous/daemon/state_files.h"

#include "base/simulated.h"

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

Result<void> rename_file(const std::string& from, const std::string& to) {
    if (SimulatedSystem::current != nullptr) {
        SimulatedSystem::current->rename_file(from, to);
        return {};
    }
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
    return fail(Errc::internal, "{}: {}", to, strerror(errno));
}

Result<void> replace_database(const std::string& file, const std::string& made,
                              const std::string& aside) {
    const bool is_real = SimulatedSystem::current == nullptr;
    const auto is_there = [&](const std::string& name) {
        return is_real && ::access(name.c_str(), F_OK) == 0;
    };
    const bool is_linked = is_real && ::link(file.c_str(), aside.c_str()) == 0;
    // The log first: a file without it is told as one that is too old. One that is there alone would be taken for that
    // of the file to come.
    if (is_there(file + "-wal"))
        if (auto done = rename_file(file + "-wal", aside + "-wal"); !done) return done;
    if (!is_linked && (!is_real || is_there(file)))
        if (auto done = rename_file(file, aside); !done) return done;
    if (is_there(file + "-shm")) ::unlink((file + "-shm").c_str());
    if (auto done = rename_file(made, file); !done) return done;
    if (is_real) sync_parent(file);
    return {};
}

Result<Fd> lock_state(const std::string& directory) {
    const std::string path = directory + "/last-commit";
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file && errno == EROFS) file.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return fail(Errc::denied, "{}: {}", path, strerror(errno));
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    if (errno == EWOULDBLOCK)
        return fail(Errc::denied, "{}: another dtrun serve uses it", directory);
    return fail(Errc::denied, "{}: {}", path, strerror(errno));
}

}  // namespace dtrun
