#include "worker/agent/onward_logins.h"

#include "base/loop/deadline.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/sealing.h"

#include <string.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <utility>

namespace dtrun::agent {
namespace {

/// For a program to end once it has read the end of its input: what it has started there ends its ranks first.
constexpr std::chrono::seconds kEndLimit{3};
constexpr std::chrono::seconds kLastLimit{
    1};  // the same when the job is over on all hosts behind this one
constexpr std::chrono::seconds kKilledLimit{1};  // from SIGKILL to its end

}  // namespace

struct OnwardLogins::Login {
    Login(const asio::any_io_executor& executor, std::uint32_t which, Seal seal_of_head)
        : number(which),
          seal(std::move(seal_of_head)),
          in(executor),
          out(executor),
          err(executor),
          has_room(executor, Timer::time_point::max()) {}

    const std::uint32_t number;
    Seal seal;
    asio::posix::stream_descriptor in, out, err;
    std::function<void()> kill;
    std::string unwritten;     ///< of its input, at most kLoginInputBytes
    std::uint32_t untold = 0;  ///< sealed bytes of that, of which the head has not heard yet
    bool is_writing = false;   ///< a coroutine writes that
    bool is_given_up = false;  ///< nobody speaks to it any more, and perhaps nobody hears it
    std::uint32_t room = kLoginOutputBytes;
    Timer has_room;  ///< cancelled when there is room again
    bool output_ended = false;
    std::string ending;  ///< how it has ended; empty: it has not
};

OnwardLogins::OnwardLogins(Parts parts)
    : parts_(std::move(parts)),
      none_left_(parts_.executor, Timer::time_point::max()),
      tasks_(parts_.executor) {}

OnwardLogins::~OnwardLogins() = default;

Result<void> OnwardLogins::take(const LoginStream& said) {
    if (stopping_) return {};
    if (said.event == LoginEvent::open) return open(said);
    const auto found = logins_.find(said.login);
    if (found == logins_.end()) return {};  // it has ended by itself
    const Kept login = found->second;
    switch (said.event) {
        case LoginEvent::input: {
            std::string_view sealed = said.bytes;
            login->unwritten.reserve(login->unwritten.size() + sealed.size());
            if (auto opened = login->seal.open(sealed, login->unwritten); !opened) return opened;
            login->untold += static_cast<std::uint32_t>(said.bytes.size());
            if (!sealed.empty() || login->untold > kLoginInputBytes)
                return fail(Errc::invalid_input, "more for a log-in than it may be sent");
            break;
        }
        case LoginEvent::input_end:
            give_up(login);
            return {};
        case LoginEvent::taken:
            login->room = std::min(login->room + said.bytes_taken, kLoginOutputBytes);
            login->has_room.cancel();
            return {};
        default:
            return fail(Errc::invalid_input, "only relays say {}", static_cast<int>(said.event));
    }
    if (!std::exchange(login->is_writing, true)) tasks_.spawn(write_input(login));
    return {};
}

Result<void> OnwardLogins::open(const LoginStream& said) {
    if (said.login <= last_) return fail(Errc::invalid_input, "a log-in has begun before");
    last_ = said.login;
    auto login =
        std::make_shared<Login>(parts_.executor, said.login, login_seal(parts_.secret, said.login));
    std::string frame;
    std::string_view sealed = said.bytes;
    if (auto opened = login->seal.open(sealed, frame); !opened) return opened;
    std::string_view rest = frame;
    const auto view = next_frame(rest);
    if (!view || !*view || (*view)->type != FrameType::login_order)
        return fail(Errc::invalid_input, "a log-in without an order");
    auto order = decode<LoginOrder>((*view)->payload);
    if (!order) return std::unexpected(order.error());
    if (order->command.empty())
        order->command = command_;
    else
        command_ = order->command;
    const auto ended = [this, weak = std::weak_ptr(login)](const std::string& ending) {
        const Kept kept = weak.lock();
        if (!kept) return;
        kept->ending = ending;
        settle(kept);
    };
    auto started = parts_.start(*order, ended);
    if (!started) {
        say(said.login, LoginEvent::errors, started.error().message + "\n");
        say(said.login, LoginEvent::output_end);
        say(said.login, LoginEvent::exited, "it cannot be started");
        return {};
    }
    login->in.assign(started->in.release());
    login->out.assign(started->out.release());
    login->err.assign(started->err.release());
    login->kill = std::move(started->kill);
    logins_.emplace(said.login, login);
    tasks_.spawn(pass_output(login, LoginEvent::output));
    tasks_.spawn(pass_output(login, LoginEvent::errors));
    return {};
}

/// Of its standard output or standard error, to their end. Of one that is given up, what there is room for.
asio::awaitable<void> OnwardLogins::pass_output(Kept login, LoginEvent event) {
    auto& from = event == LoginEvent::output ? login->out : login->err;
    std::array<char, 4096> bytes;
    for (;;) {
        while (login->room == 0 && !login->is_given_up)
            co_await login->has_room.async_wait(use_tuple);
        const std::size_t most = login->room > 0 ? login->room : bytes.size();
        const auto buffer = asio::buffer(bytes, std::min(most, bytes.size()));
        const auto [error, n] = co_await from.async_read_some(buffer, use_tuple);
        if (error) break;
        if (login->room == 0 && login->is_given_up) continue;
        // The other stream may have used the room meanwhile: by at most one piece.
        login->room -= std::min(login->room, static_cast<std::uint32_t>(n));
        say(login->number, event, {bytes.data(), n});
    }
    if (event != LoginEvent::output || !logins_.contains(login->number)) co_return;
    login->output_ended = true;
    say(login->number, LoginEvent::output_end);
    settle(login);
}

/// Until nothing is left to be written. A program that has ended reads nothing, which its end tells.
asio::awaitable<void> OnwardLogins::write_input(Kept login) {
    while (!login->unwritten.empty()) {
        std::string now = std::exchange(login->unwritten, {});
        const std::uint32_t taken = login->untold;
        const auto buffer = asio::buffer(now);
        const auto [error, n] = co_await asio::async_write(login->in, buffer, use_tuple);
        ::explicit_bzero(now.data(), now.size());
        if (error) break;
        login->untold -= taken;
        say(login->number, LoginEvent::taken, {}, taken);
    }
    login->is_writing = false;
}

/// It reads the end of its input at once, and not behind what it may never take; what it says keeps nobody waiting.
void OnwardLogins::give_up(const Kept& login) {
    if (std::exchange(login->is_given_up, true)) return;
    ::explicit_bzero(login->unwritten.data(), login->unwritten.size());
    login->unwritten.clear();
    boost::system::error_code ignored;
    login->in.close(ignored);
    login->has_room.cancel();
    if (!stopping_) tasks_.spawn(kill_later(login));
}

asio::awaitable<void> OnwardLogins::kill_later(Kept login) {
    Timer timer(parts_.executor, after(kEndLimit));
    co_await timer.async_wait(use_tuple);
    if (login->ending.empty()) login->kill();
}

/// That it has ended is the last that is said of it, behind its last words.
void OnwardLogins::settle(const Kept& login) {
    if (login->ending.empty() || !login->output_ended) return;
    std::array<char, 4096> bytes;
    for (ssize_t n; login->err.is_open() &&
                    (n = ::read(login->err.native_handle(), bytes.data(), bytes.size())) > 0;)
        say(login->number, LoginEvent::errors, {bytes.data(), static_cast<std::size_t>(n)});
    say(login->number, LoginEvent::exited, login->ending);
    boost::system::error_code ignored;
    for (auto* const stream : {&login->in, &login->out, &login->err}) stream->close(ignored);
    login->is_given_up = true;
    login->has_room.cancel();
    logins_.erase(login->number);
    if (logins_.empty()) none_left_.cancel();
}

void OnwardLogins::say(std::uint32_t login, LoginEvent event, std::string bytes,
                       std::uint32_t taken) {
    LoginStream said;
    said.login = login;
    said.event = event;
    said.bytes = std::move(bytes);
    said.bytes_taken = taken;
    parts_.tell_head(said);
}

void OnwardLogins::stop() noexcept {
    stopping_ = true;
    for (const auto& [number, login] : logins_) give_up(login);
}

asio::awaitable<void> OnwardLogins::join() {
    for (const auto limit : {kLastLimit, kKilledLimit}) {
        if (logins_.empty()) break;
        none_left_.expires_after(limit);
        co_await none_left_.async_wait(use_tuple);
        for (const auto& [number, login] : logins_) login->kill();
    }
    logins_.clear();
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::agent
