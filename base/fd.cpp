#include "base/fd.h"

#include "base/file_trust.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun {

void Fd::reset(int fd) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
}

void close_on_exec(int fd) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void leave_low_numbers(Fd& fd) {
    if (fd.get() < 0 || fd.get() >= kHighDescriptor) return;
    const int higher = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, kHighDescriptor);
    if (higher >= 0) fd.reset(higher);  // a limit may forbid it
}

Result<Pipe> make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail(Errc::internal, "pipe: {}", strerror(errno));
    return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::uint64_t descriptor_limit() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

void raise_descriptor_limit(std::uint64_t wanted) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted);
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<void> write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno == EAGAIN) {
            pollfd wait{fd, POLLOUT, 0};  // another process has made this descriptor non-blocking
            ::poll(&wait, 1, -1);
        } else if (errno != EINTR) {
            const Errc code = errno == EPIPE ? Errc::closed : Errc::internal;
            return fail(code, "write: {}", strerror(errno));
        }
    }
    return {};
}

namespace {

Result<Fd> open_to_read(const std::string& path) {
    Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (file) return file;
    const Errc code = errno == ENOENT || errno == ENOTDIR ? Errc::not_found
                      : errno == EACCES                   ? Errc::denied
                                                          : Errc::internal;
    return fail(code, "{}: {}", path, strerror(errno));
}

}  // namespace

Result<std::string> read_all(int file, const std::string& path, std::size_t bytes_max) {
    // Most files are small, as those of /proc are: room for a large one would cost more than reading them.
    constexpr std::size_t kFirst = 4u << 10, kMost = 1u << 20;
    std::string text;
    for (;;) {
        const std::size_t had = text.size(), room = std::clamp(had, kFirst, kMost);
        ssize_t n = 0;
        text.resize_and_overwrite(had + room, [&](char* bytes, std::size_t) {
            do {
                n = ::read(file, bytes + had, room);
            } while (n < 0 && errno == EINTR);
            return had + static_cast<std::size_t>(std::max<ssize_t>(n, 0));
        });
        if (n < 0) return fail(Errc::internal, "{}: {}", path, strerror(errno));
        if (n == 0) return text;
        if (text.size() > bytes_max)
            return fail(Errc::invalid_input, "{}: larger than {} bytes", path, bytes_max);
    }
}

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
    const auto file = open_to_read(path);
    if (!file) return std::unexpected(file.error());
    return read_all(file->get(), path, bytes_max);
}

Result<void> create_file(const std::string& path, std::string_view bytes) {
    const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file) {
        const Errc code = errno == EACCES || errno == EPERM ? Errc::denied : Errc::internal;
        return fail(code, "{}: {}", path, strerror(errno));
    }
    if (const auto written = write_all(file.get(), bytes); !written)
        return fail(written.error(), "{}", path);
    return {};
}

std::optional<uid_t> foreign_user(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return static_cast<uid_t>(-1);
    if (peer.uid == ::geteuid() || peer.uid == 0) return {};
    return peer.uid;
}

Result<std::string> read_private_file(const std::string& path, std::size_t bytes_max,
                                      std::string_view credentials) {
    const auto file = open_to_read(path);
    if (!file) return std::unexpected(file.error());
    auto facts = facts_of(file->get());
    if (!facts) return fail(facts.error(), "{}", path);
    facts->is_credential = !credentials.empty() && path.starts_with(std::string(credentials) + "/");
    if (auto is_private = check_private(*facts, ::geteuid(), path); !is_private)
        return std::unexpected(is_private.error());
    return read_all(file->get(), path, bytes_max);
}

}  // namespace dtrun
