#pragma once

#include "base/result.h"

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace dtrun {

/// Owns a file descriptor; closes it once.
class Fd {
public:
    Fd() = default;
    explicit Fd(int fd) noexcept : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) reset(std::exchange(other.fd_, -1));
        return *this;
    }
    ~Fd() { reset(); }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    int release() noexcept { return std::exchange(fd_, -1); }
    void reset(int fd = -1) noexcept;

private:
    int fd_ = -1;
};

struct Pipe {
    Fd read;
    Fd write;
};

/// The first number of descriptors that are ours for long where there are many of them.
constexpr int kHighDescriptor = 256;
/// Gives a descriptor, close-on-exec, a high number if it may have one. A child gets a copy of our table up to the
/// last that it is to have: without what stays ours that is short, however much there is (subprocess.h).
void leave_low_numbers(Fd& fd);

/// Makes a descriptor close-on-exec. Asio's sockets need it: ranks must not hold our connections
/// open.
void close_on_exec(int fd);

/// Both ends close-on-exec and blocking. Errc: internal (out of descriptors)
Result<Pipe> make_pipe();

/// How many descriptors this process may have open: the soft limit.
std::uint64_t descriptor_limit();
/// Raises the soft limit to `wanted`, at most to the hard limit. Programs that we start inherit it.
void raise_descriptor_limit(std::uint64_t wanted);

/// Writes everything to a blocking descriptor. Errc: closed (EPIPE), internal
Result<void> write_all(int fd, std::string_view bytes);

/// Makes a file with that content, in place of what one of this name had; others than its owner may at most read it.
/// Errc: as write_all(), and denied. The message starts with the path.
Result<void> create_file(const std::string& path, std::string_view bytes);

/// What is left to read in a file, or until the other side closes, at most `bytes_max`.
/// Errc: invalid_input (more), internal. The message starts with `path`, which is not opened.
Result<std::string> read_all(int file, const std::string& path, std::size_t bytes_max);

/// Whole content of a file, at most `bytes_max`. Errc: not_found, denied, invalid_input (too large),
/// internal. The message starts with the path.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max = 64u << 20);

/// The user id of a Unix socket's peer if it is neither ours nor root's: such a peer must not be
/// trusted. -1 if the kernel does not tell the peer's user.
std::optional<uid_t> foreign_user(int socket);

/// read_file() for a secret, which has to be private as check_private() of file_trust.h says.
/// \param credentials  $CREDENTIALS_DIRECTORY, or empty
/// Errc: as read_file(); denied also for a file that is not private
Result<std::string> read_private_file(const std::string& path, std::size_t bytes_max,
                                      std::string_view credentials);

}  // namespace dtrun
