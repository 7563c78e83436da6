#pragma once

#include "base/fd.h"
#include "base/ids.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/wire/login_messages.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace dtrun::agent {

/// A program that logs in to another host, and our ends of its standard streams.
struct LoginProgram {
    Fd in, out, err;             ///< non-blocking
    std::function<void()> kill;  ///< at once, and what it has started
};

/// Starts one. \param ended  called once, with how it has ended, as "exit status 255"; later than this returns
/// Errc: not_found (there is no ssh), internal
using StartLogin = std::function<Result<LoginProgram>(
    const LoginOrder& order, std::function<void(std::string ending)> ended)>;

/// Log-ins to the hosts behind this one, which the head asks of a relay: it has the keys, and opens the log-in by a
/// program, whose standard streams are carried to the head as `login_stream`. What runs there is none of our business.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join() before destruction.
class OnwardLogins {
public:
    struct Parts {
        asio::any_io_executor executor;
        Secret secret;  ///< of the job
        StartLogin start;
        std::function<void(const LoginStream&)> tell_head;
    };
    explicit OnwardLogins(Parts parts);
    ~OnwardLogins();
    OnwardLogins(const OnwardLogins&) = delete;
    OnwardLogins& operator=(const OnwardLogins&) = delete;

    /// What the head says. Errc: invalid_input
    Result<void> take(const LoginStream& said);

    std::size_t count() const { return logins_.size(); }  ///< that have not ended

    void stop() noexcept;  ///< each log-in reads the end of its input
    /// Returns when none is left; what does not end by itself is killed.
    asio::awaitable<void> join();

private:
    struct Login;
    using Kept = std::shared_ptr<Login>;

    Result<void> open(const LoginStream& said);
    asio::awaitable<void> pass_output(Kept login, LoginEvent event);
    asio::awaitable<void> write_input(Kept login);
    asio::awaitable<void> kill_later(Kept login);
    void give_up(const Kept& login);
    void settle(const Kept& login);
    void say(std::uint32_t login, LoginEvent event, std::string bytes = {},
             std::uint32_t taken = 0);

    Parts parts_;
    std::string command_;  ///< of the last order that had one
    std::map<std::uint32_t, Kept> logins_;
    std::uint32_t last_ = 0;  ///< the head's numbers rise: what has another one has ended
    bool stopping_ = false;
    Timer none_left_;  ///< cancelled when the last one has ended
    TaskGroup tasks_;
};

}  // namespace dtrun::agent
