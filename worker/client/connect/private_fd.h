#pragma once

#include <functional>
#include <utility>

namespace dtrun::embedded {

/// Owns a descriptor that forked children do not have: who is at its other end must see that this
/// process has ended, whatever its children do. (They are closed by a handler of pthread_atfork();
/// programs that are executed lose them by close-on-exec.)
class PrivateFd {
public:
    PrivateFd() = default;
    /// \param make  gives a descriptor, close-on-exec, or a negative number, at once: nobody can
    ///              fork meanwhile
    explicit PrivateFd(const std::function<int()>& make);
    PrivateFd(PrivateFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    PrivateFd& operator=(PrivateFd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~PrivateFd() { reset(); }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    void reset() noexcept;

private:
    friend std::pair<PrivateFd, PrivateFd> private_socket_pair();
    int fd_ = -1;
};

/// Both ends of a Unix stream connection, close-on-exec; empty ones, with errno, on failure.
std::pair<PrivateFd, PrivateFd> private_socket_pair();

}  // namespace dtrun::embedded
