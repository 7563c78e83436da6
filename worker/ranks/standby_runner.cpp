#include "worker/ranks/standby_runner.h"

#include "base/log.h"
#include "base/process/subprocess.h"
#include "base/strings.h"
#include "worker/ranks/agent_directories.h"
#include "worker/ranks/process_tree.h"
#include "worker/ranks/python_command.h"
#include "worker/ranks/standby_shim.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace dtrun::ranks {
namespace {

constexpr int kYielding = 19;  // nice: takes a processor that nobody else wants

int own_nice() {
    return ::getpriority(PRIO_PROCESS, 0);
}

/// Whether the kernel lets us make a process that is nice as important again as we are.
bool can_restore_priority() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NICE, &limit) == 0 &&
        limit.rlim_cur >= static_cast<rlim_t>(20 - own_nice()))
        return true;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
    return ::syscall(SYS_capget, &header, data) == 0 &&
           (data[0].effective & (1u << CAP_SYS_NICE)) != 0;
}

/// A message of standby_shim.h.
std::string message_of(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text.append(word).push_back('\0');
    std::string message;
    for (unsigned shift = 0; shift < 32; shift += 8)
        message.push_back(static_cast<char>(text.size() >> shift));
    return message + text;
}

/// Sends the first bytes that fit, and a descriptor with them. \return how many; -1: nobody is there
ssize_t send_first(int socket, std::string_view bytes, int descriptor) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// What did not fit at first; it is gone when the process has taken it, or has ended.
struct Rest {
    asio::posix::stream_descriptor agent;
    std::string bytes;
};

void send_rest(asio::posix::stream_descriptor agent, std::string bytes) {
    const auto rest = std::make_shared<Rest>(std::move(agent), std::move(bytes));
    const auto buffer = asio::buffer(rest->bytes);
    asio::async_write(rest->agent, buffer, [rest](boost::system::error_code, std::size_t) {});
}

bool is_name(const std::string& entry, std::string_view name) {
    return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
}

/// The environment of a process that is to be kept ready: our directory comes first in PYTHONPATH.
std::vector<std::string> waiting_env(const std::vector<std::string>& env, std::string path,
                                     int socket) {
    std::vector<std::string> result;
    for (const std::string& entry : env) {
        if (!is_name(entry, "PYTHONPATH")) {
            result.push_back(entry);
        } else if (const std::string own = entry.substr(11); !own.empty()) {
            path += ":" + own;
        }
    }
    result.push_back("PYTHONPATH=" + path);
    result.push_back(fmt::format("{}={}", kStandbyVariable, socket));
    return result;
}

}  // namespace

StandbyRunner::StandbyRunner(asio::any_io_executor executor, std::unique_ptr<Supervisor> supervisor,
                             std::function<void(std::string)> tell)
    : executor_(executor),
      supervisor_(std::move(supervisor)),
      tell_(std::move(tell)),
      can_yield_(can_restore_priority()),
      timer_(executor) {}

StandbyRunner::~StandbyRunner() {
    if (!directory_.empty()) remove_directory(directory_);
}

void StandbyRunner::keep_ready(StandbyOptions options, const RankCommand& like) {
    options_ = std::move(options);
    plan_.emplace(options_.count);
    expect(like);
    plan_->ranks_run(Clock::now());
    look();
}

StandbyRunner::Kind StandbyRunner::kind_of(const RankCommand& command) {
    Kind kind{command.path, command.directory,   command.argv,
              {},           command.own_session, command.descriptor_limit};
    for (const std::string& entry : command.env) {
        const std::string name = entry.substr(0, entry.find('='));
        if (!std::ranges::binary_search(command.late, name)) kind.env.push_back(entry);
    }
    return kind;
}

/// Those that would not fit are of no use any more.
void StandbyRunner::expect(const RankCommand& command) {
    const bool is_same = kind_of(command) == kind_of(like_);
    like_ = command;
    if (is_same) return;
    end_all();
    std::string why = why_not_standby(command);
    if (command.wants_input) why = "the ranks read standard input";
    if (why.empty()) return;
    plan_->give_up(std::move(why));
    give_up();
}

void StandbyRunner::start(const Request& request, std::function<void(Start)> started) {
    if (!plan_ || request.command.terminal) return supervisor_->start(request, std::move(started));
    plan_->ranks_run(Clock::now());
    if (!plan_->has_given_up()) expect(request.command);
    if (!become(request, started)) supervisor_->start(request, std::move(started));
    look();
}

/// \return false: none is ready
bool StandbyRunner::become(const Request& request, std::function<void(Start)>& started) {
    const auto found =
        std::ranges::find_if(waiting_, [](const auto& each) { return each.second->parked; });
    if (found == waiting_.end()) return false;
    const auto [pid, waiting] = *found;
    forget(found);
    if (can_yield_) ::setpriority(PRIO_PGRP, static_cast<id_t>(pid), own_nice());
    if (const auto bound = bind_process(pid, request.command.cpus); !bound)
        tell_(fmt::format("rank {}: {}", request.rank, bound.error().message));
    const std::string message = message_of(request.command.env);
    const ssize_t sent =
        send_first(waiting->agent.native_handle(), message, request.command.inherited);
    if (sent <= 0 || !supervisor_->adopt(pid, request)) {
        supervisor_->kill_helper(pid);
        return false;
    }
    waiting->agent.cancel();
    if (static_cast<std::size_t>(sent) < message.size())
        send_rest(std::move(waiting->agent), message.substr(static_cast<std::size_t>(sent)));
    else
        waiting->agent.close();
    Start start{request.rank, request.place, pid, {}, {}, {}, {}};
    start.out = std::move(waiting->process.out);
    start.err = std::move(waiting->process.err);
    started(std::move(start));
    return true;
}

void StandbyRunner::stop_all(int signal, std::chrono::milliseconds grace,
                             std::function<void(int)> gone) {
    if (!plan_ || !gone) return supervisor_->stop_all(signal, grace, std::move(gone));
    plan_->ranks_change();
    supervisor_->stop_all(signal, grace, [this, gone = std::move(gone)](int orphans) {
        if (plan_) plan_->ranks_run(Clock::now());
        look();
        gone(orphans);
    });
}

void StandbyRunner::retire() {
    plan_.reset();
    timer_.cancel();
    waiting_.clear();
    supervisor_->retire();
    if (!directory_.empty()) remove_directory(directory_);
    directory_.clear();
}

void StandbyRunner::look() {
    if (!plan_) return;
    const Deadline now = Clock::now();
    if (plan_->is_late(now)) {
        plan_->give_up(
            fmt::format("one was not ready within {} s", StandbyPlan::kStartLimit.count()));
        give_up();
    }
    if (plan_->wants_one(now)) start_one();
    timer_.expires_at(plan_->next_deadline());
    timer_.async_wait([this](boost::system::error_code error) {
        if (!error) look();
    });
}

void StandbyRunner::start_one() {
    if (const auto done = try_start(); !done) {
        plan_->give_up(done.error().message);
        give_up();
    }
}

Result<void> StandbyRunner::try_start() {
    const auto directory = shim_directory();
    if (!directory) return std::unexpected(directory.error());
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return fail(Errc::internal, "socketpair: {}", std::strerror(errno));
    Fd ours(ends[0]);
    const Fd theirs(ends[1]);
    ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
    const std::string modules = message_of(options_.preload);
    if (send_first(ours.get(), modules, -1) != static_cast<ssize_t>(modules.size()))
        return fail(Errc::internal, "--preload: too many modules");
    const auto waiting = std::make_shared<Waiting>(executor_);
    RankCommand command = like_;
    command.cpus.clear();  // which place it will have is not known yet
    command.env = waiting_env(kind_of(like_).env, *directory, theirs.get());
    command.inherited = theirs.get();
    const auto pid_of_end = std::make_shared<pid_t>(0);
    auto started = supervisor_->start_helper(
        command, [this, pid_of_end](int status) { ended(*pid_of_end, status); });
    if (!started) return std::unexpected(started.error());
    const pid_t pid = *pid_of_end = started->pid;
    if (can_yield_) ::setpriority(PRIO_PROCESS, static_cast<id_t>(pid), kYielding);
    waiting->process = std::move(*started);
    waiting->agent.assign(ours.release());
    waiting_[pid] = waiting;
    plan_->started(Clock::now());
    keep_listening(pid, waiting);
    return {};
}

/// Writes the shim where only this user can.
Result<std::string> StandbyRunner::shim_directory() {
    if (!directory_.empty()) return directory_;
    auto made = make_directory(options_.directory_prefix);
    if (!made) return made;
    directory_ = *made;
    const auto written = create_file(directory_ + "/sitecustomize.py", kStandbyShim);
    if (!written) return std::unexpected(written.error());
    return directory_;
}

void StandbyRunner::keep_listening(pid_t pid, const std::shared_ptr<Waiting>& waiting) {
    waiting->agent.async_read_some(
        asio::buffer(waiting->piece),
        [this, pid, weak = std::weak_ptr(waiting)](boost::system::error_code error, std::size_t n) {
            const auto current = weak.lock();
            if (error || !current || !waiting_.contains(pid)) return;  // its end is told as well
            current->said.append(current->piece.data(), n);
            if (current->said == "P") {
                current->parked = true;
                plan_->parked();
                log::info("process {} is kept ready", pid);
                look();
            }
            keep_listening(pid, current);
        });
}

/// One has ended by itself, before it was used.
void StandbyRunner::ended(pid_t pid, int status) {
    const auto found = waiting_.find(pid);
    if (!plan_ || found == waiting_.end()) return;
    const auto waiting = found->second;
    waiting_.erase(found);
    const ssize_t n = ::recv(waiting->agent.native_handle(), waiting->piece.data(),
                             waiting->piece.size(), MSG_DONTWAIT);
    if (n > 0) waiting->said.append(waiting->piece.data(), static_cast<std::size_t>(n));
    if (waiting->said.starts_with("E")) plan_->give_up(waiting->said.substr(1));
    plan_->died(waiting->parked, describe_exit(status));
    if (plan_->has_given_up()) give_up();
    look();
}

/// It is not one of ours any more; the caller ends it, or makes it a rank.
void StandbyRunner::forget(WaitingMap::iterator which) {
    if (which->second->parked)
        plan_->used();
    else
        plan_->start_ended();
    waiting_.erase(which);
}

void StandbyRunner::end_all() {
    while (!waiting_.empty()) {
        supervisor_->kill_helper(waiting_.begin()->first);
        forget(waiting_.begin());
    }
}

/// From now on ranks are started as usual.
void StandbyRunner::give_up() {
    end_all();
    tell_(fmt::format("no processes are kept ready (--standby): {}", plan_->why()));
}

}  // namespace dtrun::ranks
