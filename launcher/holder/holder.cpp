#include "launcher/holder/holder.h"

#include "base/ids.h"
#include "base/log.h"
#include "base/loop/accept.h"
#include "launcher/control/control_place.h"
#include "launcher/warm/warm_place.h"
#include "rendezvous/wire/message.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <utility>

namespace dtrun::holder {
namespace {

constexpr std::chrono::milliseconds kAgentLimit{1'500};  // for an agent's first word
constexpr std::chrono::seconds kLeaveLimit{1};           // for a keeper to end
/// Between two signs of life for keepers, which end after 90 s without; also for firewalls that forget what is idle.
constexpr std::chrono::seconds kAlivePause{30};
constexpr std::chrono::seconds kSilenceMax{75};  // of a keeper

}  // namespace

Holder::Holder(asio::any_io_executor executor, std::vector<Host> hosts, const Options& options)
    : executor_(std::move(executor)),
      options_(options),
      acceptor_(executor_),
      changed_(executor_, Timer::time_point::max()),
      alive_said_(Clock::now()),
      limits_(executor_),
      tasks_(executor_) {
    for (Host& host : hosts)
        hosts_.push_back(std::make_unique<HeldHost>(
            HeldHost::Parts{executor_, std::move(host.name), std::move(host.key),
                            std::move(host.open), std::move(host.seen_as), copies_,
                            options_.connect_timeout, options_.keep},
            *this));
}

Holder::~Holder() {
    remove_socket();
}

void Holder::remove_socket() noexcept {
    if (!path_.empty() && ::unlink(path_.c_str()) == 0)
        ::rmdir(path_.substr(0, path_.rfind('/')).c_str());
    path_.clear();
}

/// The socket gets its name when it listens: who finds one that refuses knows that it is dead.
Result<void> Holder::listen(const std::string& folder) {
    if (auto made = control::make_private_folder(folder); !made) return made;
    const std::string path =
        fmt::format("{}/{:08x}{}", folder, random_id() & 0xffff'ffff, warm::kHolderSuffix);
    const std::string coming = path + ".new";
    if (coming.size() >= sizeof(sockaddr_un::sun_path))
        return fail(Errc::invalid_input, "{}: too long for a socket's name", path);
    boost::system::error_code error;
    acceptor_.open(Unix(), error);
    if (!error) close_on_exec(acceptor_.native_handle());
    if (!error) acceptor_.bind(Unix::endpoint(coming), error);
    if (!error) acceptor_.listen(SOMAXCONN, error);
    boost::system::error_code ignored;
    if (error) {
        acceptor_.close(ignored);  // it may be tried in another folder
        return fail(Errc::internal, "{}: {}", path, error.message());
    }
    ::chmod(coming.c_str(), 0600);
    if (std::rename(coming.c_str(), path.c_str()) != 0) {
        const int cause = errno;
        acceptor_.close(ignored);
        ::unlink(coming.c_str());
        return fail(Errc::internal, "{}: {}", path, ::strerror(cause));
    }
    path_ = path;
    folder_.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder_) ::flock(folder_.get(), LOCK_SH | LOCK_NB);
    return {};
}

asio::awaitable<void> Holder::run(std::function<void()> tried) {
    tasks_.spawn(accept());
    std::size_t next = 0;
    TaskGroup watching(executor_), log_ins(executor_);
    watching.spawn(watch());
    const std::size_t workers = std::min<std::size_t>(options_.log_ins_at_once, hosts_.size());
    for (std::size_t i = 0; i < workers; ++i) log_ins.spawn(log_in_all(next));
    co_await log_ins.join();
    tried_ = true;
    tried();
    nothing_held_ = std::ranges::all_of(
        hosts_, [](const auto& host) { return host->state() == HeldState::gone; });
    changed_.cancel();
    co_await watching.join();
    remove_socket();
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    limits_.stop();
    co_await limits_.join();
    for (const auto& [id, caller] : callers_) caller->link.close();
    co_await tasks_.join();
}

/// Logs into hosts that nobody else has begun with. What follows a log-in goes on beside that.
asio::awaitable<void> Holder::log_in_all(std::size_t& next) {
    while (next < hosts_.size()) {
        HeldHost& host = *hosts_[next++];
        tasks_.spawn(host.run());
        while (host.state() == HeldState::logging_in) co_await changed_.async_wait(use_tuple);
    }
}

/// Leaves hosts whose time is over, and sees which do not answer any more; also while others are still logged into.
asio::awaitable<void> Holder::watch() {
    while (!is_at_end()) {
        const Deadline now = Clock::now();
        const bool due = now >= alive_said_ + kAlivePause;
        if (due) alive_said_ = now;
        Deadline next = alive_said_ + kAlivePause;
        for (const auto& host : hosts_) {
            if (host->state() == HeldState::ready && now >= host->ends()) leave(*host);
            const bool is_ready = host->state() == HeldState::ready;
            if (is_ready && now >= host->heard() + kSilenceMax) host->cut("it does not answer");
            if (is_ready && due) say(*host, 0, WarmEvent::alive);
            const bool is_timed =
                is_ready || (host->state() == HeldState::gone && !host->is_over());
            if (is_timed && host->ends() > now) next = std::min(next, host->ends());
        }
        changed_.expires_at(next);
        co_await changed_.async_wait(use_tuple);
    }
}

bool Holder::is_at_end() const {
    return tried_ && (nothing_held_ || is_over());
}

bool Holder::is_over() const {
    return std::ranges::all_of(hosts_, [](const auto& host) { return host->is_over(); });
}

void Holder::changed(const std::string& key) {
    HeldHost& host = *find(key);
    changed_.cancel();
    for (const auto& [id, caller] : callers_) {
        if (caller->host != &host) continue;
        if (host.state() == HeldState::ready && caller->stream == 0) begin(id, host);
        if (host.state() != HeldState::gone) continue;
        if (!caller->is_answered) answer(*caller, {});
        caller_of_.erase(caller->stream);
        caller->link.shut_down_sending();
    }
    look_at_leaving();
}

HeldHost* Holder::find(const std::string& key) {
    const auto found =
        std::ranges::find_if(hosts_, [&](const auto& host) { return host->key() == key; });
    return found == hosts_.end() ? nullptr : found->get();
}

std::vector<HeldStatus> Holder::hosts() const {
    std::vector<HeldStatus> all;
    for (const auto& host : hosts_)
        if (!(host->terms().released && host->state() == HeldState::gone))
            all.push_back(host->status());
    return all;
}

asio::awaitable<void> Holder::accept() {
    AcceptTrouble trouble("the holder's socket");
    for (;;) {
        auto socket = co_await accept_next(acceptor_, trouble);
        if (!socket) co_return;
        // The folder keeps others out already; this holds for one that root has opened.
        if (foreign_user(socket->native_handle())) continue;
        const CallerId id = ++last_caller_;
        callers_.emplace(id, std::make_unique<Caller>(std::move(*socket)));
        tasks_.spawn(serve(id));
    }
}

asio::awaitable<void> Holder::serve(CallerId id) {
    Caller& caller = *callers_.at(id);
    TaskGroup writer(executor_);
    writer.spawn(caller.link.run_writer());
    const std::function<Result<void>(const FrameView&)> take = [this, id](const FrameView& frame) {
        return handle(id, frame);
    };
    const auto served = co_await caller.link.serve(take);
    if (served.error().code == Errc::invalid_input)
        log::info("the holder's socket: {}", served.error().message);
    // Its job has ended, and so does the lifeline of its agent.
    if (caller.stream != 0) say(*caller.host, caller.stream, WarmEvent::input_end);
    caller_of_.erase(caller.stream);
    caller.link.close();
    co_await writer.join();
    callers_.erase(id);
}

Result<void> Holder::handle(CallerId id, const FrameView& frame) {
    Caller& caller = *callers_.at(id);
    if (caller.asked) {
        auto said = decode<WarmStream>(frame.payload);
        const bool is_input = frame.type == FrameType::warm_stream && said &&
                              said->event == WarmEvent::input && caller.stream != 0;
        if (!is_input) return fail(Errc::invalid_input, "this is no input of an agent");
        say(*caller.host, caller.stream, WarmEvent::input, said->bytes);
        ::explicit_bzero(said->bytes.data(), said->bytes.size());
        return {};
    }
    const auto request = decode<WarmRequest>(frame.payload);
    if (frame.type != FrameType::warm_request || !request)
        return fail(Errc::invalid_input, "a caller's first frame is a request");
    caller.asked = true;
    switch (request->wish) {
        case WarmWish::take:
            take(caller, *request);
            break;
        case WarmWish::keep:
            keep(caller, *request);
            break;
        case WarmWish::release:
            release(caller, *request);
            break;
        case WarmWish::list:
            answer(caller, {false, false, {}, hosts()});
    }
    return {};
}

void Holder::answer(Caller& caller, WarmAnswer answer) {
    caller.is_answered = !answer.waits;
    caller.link.send(encode(answer));
}

void Holder::take(Caller& caller, const WarmRequest& request) {
    HeldHost* const host = find(request.key);
    if (host == nullptr || host->terms().released) return answer(caller, {});
    if (request.keep_ms > 0) host->terms().keep = std::chrono::milliseconds(request.keep_ms);
    host->terms().used = Clock::now();
    const bool waits = host->state() == HeldState::logging_in && !tried_;
    if (!waits && host->state() != HeldState::ready) {
        answer(caller, {});
        if (host->may_log_in_again()) tasks_.spawn(host->run());
        return;
    }
    caller.host = host;
    if (waits) return answer(caller, {true, false, {}, {}});
    const auto of_caller = [&](const auto& entry) { return entry.second.get() == &caller; };
    begin(std::ranges::find_if(callers_, of_caller)->first, *host);
}

void Holder::begin(CallerId id, HeldHost& host) {
    const std::uint32_t stream = ++last_stream_;
    callers_.at(id)->stream = stream;
    caller_of_[stream] = id;
    host.streams()[stream] = false;
    host.count_agent();
    say(host, stream, WarmEvent::open);
    limits_.spawn(wait_for_agent(stream));
}

/// A host that says nothing at all is cut, unless a job is there, which finds out: it was started anew, or is not to
/// be reached.
asio::awaitable<void> Holder::wait_for_agent(std::uint32_t stream) {
    const Deadline asked = Clock::now();
    Timer limit(executor_, after(kAgentLimit));
    const auto [error] = co_await limit.async_wait(use_tuple);
    const auto found = caller_of_.find(stream);
    if (error || found == caller_of_.end()) co_return;
    Caller& caller = *callers_.at(found->second);
    if (caller.is_answered) co_return;
    HeldHost& host = *caller.host;
    const bool is_silent = host.heard() < asked;
    refuse(caller);
    const bool has_others = std::ranges::any_of(callers_, [&host](const auto& entry) {
        return entry.second->host == &host && entry.second->stream != 0;
    });
    if (is_silent && !has_others) host.cut("it does not answer");
}

void Holder::said(const WarmStream& said) {
    const auto found = caller_of_.find(said.stream);
    if (found == caller_of_.end()) return;
    Caller& caller = *callers_.at(found->second);
    if (!caller.is_answered) {
        if (said.event == WarmEvent::errors) return caller.early.push_back(encode(said));
        // It does not run: its file is gone, or the host has no room for a process.
        if (said.event != WarmEvent::output) return refuse(caller);
        answer(caller, {false, true, caller.host->seen_as(), {}});
        for (Bytes& early : std::exchange(caller.early, {})) caller.link.send(std::move(early));
    }
    caller.link.send(encode(said));
}

/// The caller is to log in by itself.
void Holder::refuse(Caller& caller) {
    HeldHost& host = *std::exchange(caller.host, nullptr);
    const std::uint32_t stream = std::exchange(caller.stream, 0);
    answer(caller, {});
    caller_of_.erase(stream);
    say(host, stream, WarmEvent::input_end);
}

void Holder::keep(Caller& caller, const WarmRequest& request) {
    WarmAnswer kept;
    for (const std::string& key : request.hosts) {
        HeldHost* const host = find(key);
        if (host == nullptr || host->terms().released) continue;
        host->terms() = {std::chrono::milliseconds(request.keep_ms), Clock::now()};
        kept.hosts.push_back(host->status());
    }
    changed_.cancel();
    answer(caller, std::move(kept));
}

/// Answered when those are left of which no job has an agent.
void Holder::release(Caller& caller, const WarmRequest& request) {
    for (const auto& host : hosts_) {
        const bool is_meant =
            request.hosts.empty() || std::ranges::count(request.hosts, host->name()) > 0;
        if (!is_meant) continue;
        release(*host);
        if (host->state() != HeldState::gone) caller.leaving.push_back(host.get());
    }
    changed_.cancel();
    look_at_leaving();
    if (caller.leaving.empty()) answer(caller, {});
}

void Holder::release(HeldHost& host) {
    host.terms().released = true;
    const bool is_there = host.state() == HeldState::ready || host.state() == HeldState::logging_in;
    if (is_there && host.jobs() == 0) leave(host);
}

void Holder::release_all() {
    for (const auto& host : hosts_) release(*host);
    changed_.cancel();
}

void Holder::look_at_leaving() {
    for (const auto& [id, caller] : callers_) {
        if (caller->leaving.empty() || caller->is_answered) continue;
        const bool is_done = std::ranges::all_of(caller->leaving, [](const HeldHost* host) {
            return host->state() == HeldState::gone || host->jobs() > 0;
        });
        if (!is_done) continue;
        WarmAnswer left;
        for (const HeldHost* const host : caller->leaving) left.hosts.push_back(host->status());
        answer(*caller, std::move(left));
    }
}

void Holder::leave(HeldHost& host) {
    if (host.log_out()) tasks_.spawn(host.write());
    if (host.state() == HeldState::leaving) limits_.spawn(wait_for_end(host));
}

asio::awaitable<void> Holder::wait_for_end(HeldHost& host) {
    Timer limit(executor_, after(kLeaveLimit));
    const auto [error] = co_await limit.async_wait(use_tuple);
    if (!error && host.state() == HeldState::leaving) host.cut("released");
}

void Holder::say(HeldHost& host, std::uint32_t stream, WarmEvent event, std::string_view bytes) {
    if (host.say(stream, event, bytes)) tasks_.spawn(host.write());
}

}  // namespace dtrun::holder
