#include "rendezvous/asking/locked_command.h"

#include "base/environment.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/loop/task_group.h"
#include "base/process/subprocess.h"
#include "rendezvous/asking/store_run.h"
#include "rendezvous/wire/msgpack.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <string_view>
#include <vector>

namespace dtrun::asking {
namespace {

/// How long a command has to end when its lock was lost.
constexpr std::chrono::seconds kEndGrace{5};
/// Nobody tells when a process has ended that is not our child.
constexpr std::chrono::milliseconds kLookPause{50};

/// Ours, with what tells of the lock.
std::vector<std::string> environment_with(const std::string& key, std::uint64_t token) {
    std::vector<std::string> env = own_environment();
    std::erase_if(env, [](const std::string& variable) {
        return variable.starts_with("DTRUN_LOCK=") || variable.starts_with("DTRUN_LOCK_TOKEN=");
    });
    env.push_back("DTRUN_LOCK=" + key);
    env.push_back("DTRUN_LOCK_TOKEN=" + std::to_string(token));
    return env;
}

}  // namespace

LockedCommand::LockedCommand(StoreClient& client, const std::string& key, std::uint64_t token,
                             std::span<const std::string> words)
    : client_(client), key_(key), token_(token), words_(words), wake_(client.executor()) {}

asio::awaitable<Result<int>> LockedCommand::run() {
    EndingSignals signals(EndingSignals::Children::watched);
    if (const auto started = start(signals); !started) co_return std::unexpected(started.error());
    TaskGroup tasks(client_.executor());
    tasks.spawn(pass_signals_on(signals));
    tasks.spawn(watch_lock());
    const int code = co_await wait_for_end();
    client_.give_up();
    tasks.stop();
    co_await tasks.join();
    while (signals.take(0)) {  // what comes from now on may end us; this was for the command
    }
    if (is_lost_) co_return fail(Errc::closed, "the lock was lost");
    co_return code;
}

Result<void> LockedCommand::start(const EndingSignals& signals) {
    const std::vector<std::string> env = environment_with(key_, token_);
    ProcessPlan plan{.path = words_.front(), .argv = words_, .env = env};
    // Where we are in the foreground of a terminal one in a group of its own could neither read that nor be stopped from it.
    const Fd terminal(::open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY));
    const bool is_on_terminal = terminal && ::tcgetpgrp(terminal.get()) == ::getpgrp();
    plan.group = is_on_terminal ? ProcessPlan::Group::ours : ProcessPlan::Group::own_group;
    plan.keep_ignored_signals = true;
    plan.blocked_signals = &signals.before();
    plan.death_signal = SIGTERM;  // nobody would notice then that the lock is lost
    const auto pid = spawn_process(plan);
    if (!pid) return std::unexpected(pid.error());
    pid_ = *pid;
    receiver_ = is_on_terminal ? pid_ : -pid_;
    return {};
}

asio::awaitable<void> LockedCommand::pass_signals_on(EndingSignals& signals) {
    using Descriptor = asio::posix::stream_descriptor;
    Descriptor come(client_.executor(), ::fcntl(signals.fd(), F_DUPFD_CLOEXEC, 0));
    for (;;) {
        const auto [error] = co_await come.async_wait(Descriptor::wait_read, use_tuple);
        if (error) co_return;
        while (signals.take(receiver_)) {
        }
        wake_.cancel();
    }
}

/// The lock's key has another revision when it is not ours any more.
asio::awaitable<void> LockedCommand::watch_lock() {
    const StoreRequest request{
        .op = Op::watch, .keys = {key_}, .number = token_, .timeout_ms = kForeverMs};
    const auto reply = co_await client_.ask(request, Deadline::max());
    if (pid_ == 0) co_return;  // it has ended, and this was cancelled
    is_lost_ = true;
    log::error("{}: the lock was lost, and {} is ended: {}", key_, words_.front(),
               reply ? "it is not ours in the store any more" : reply.error().message);
    ::kill(receiver_, SIGTERM);
    kill_at_ = after(kEndGrace);
    wake_.cancel();
}

asio::awaitable<int> LockedCommand::wait_for_end() {
    int status = 0;
    pid_t ended = 0;
    for (;;) {
        ended = ::waitpid(pid_, &status, WNOHANG);
        if (ended != 0) break;
        kill_when_due();
        wake_.expires_at(kill_at_);
        co_await wake_.async_wait(use_tuple);
    }
    pid_ = 0;
    if (ended < 0) log::error("{}: how it has ended is not known", words_.front());
    // What it has started is not to go on without the lock.
    while (is_lost_ && receiver_ < 0 && ::kill(receiver_, 0) == 0 && kill_at_ != Deadline::max()) {
        kill_when_due();
        wake_.expires_after(kLookPause);
        co_await wake_.async_wait(use_tuple);
    }
    co_return ended < 0 ? kStoreInternal : exit_code_of(status);
}

void LockedCommand::kill_when_due() {
    if (kill_at_ > Clock::now()) return;
    ::kill(receiver_, SIGKILL);
    kill_at_ = Deadline::max();
}

}  // namespace dtrun::asking
