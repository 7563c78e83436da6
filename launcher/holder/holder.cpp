#include "launcher/holder/holder.h"

#include "base/ids.h"
#include "launcher/warm/warm_place.h"
#include "rendezvous/wire/message.h"

#include <string.h>
#include <algorithm>
#include <utility>

namespace dtrun::holder {
namespace {

constexpr std::chrono::milliseconds kAgentLimit{1'500};  // for an agent's first word
constexpr std::chrono::seconds kLeaveLimit{1};           // for a keeper to end
/// Between two signs of life for keepers, which end after 90 s without, and for jobs that wait for a log-in; also for
/// firewalls that forget what is idle.
constexpr std::chrono::seconds kAlivePause{30};
constexpr std::chrono::seconds kSilenceMax{75};  // of a keeper

}  // namespace

Holder::Holder(asio::any_io_executor executor, std::vector<Host> hosts, const Options& options)
    : executor_(std::move(executor)),
      options_(options),
      copies_(hosts.size()),
      gate_(executor_, options_.log_ins_at_once),
      changed_(executor_, Timer::time_point::max()),
      alive_said_(Clock::now()),
      limits_(executor_),
      tasks_(executor_),
      server_(executor_, "the holder's socket", *this) {
    for (Host& host : hosts) {
        HeldHost::Parts parts{executor_,
                              std::move(host.name),
                              host.key,
                              std::move(host.route),
                              std::move(host.open),
                              std::move(host.seen_as),
                              copies_,
                              gate_,
                              options_.patience,
                              options_.keep,
                              after(options_.patience.wait_for_hosts),
                              static_cast<std::uint32_t>(hosts_.size())};
        Held& held = held_[host.key];
        held.host = std::make_unique<HeldHost>(std::move(parts), *this);
        hosts_.push_back(held.host.get());
    }
}

Result<void> Holder::listen(const std::string& folder) {
    return server_.listen(folder,
                          fmt::format("{:08x}{}", random_id() & 0xffff'ffff, warm::kHolderSuffix));
}

asio::awaitable<void> Holder::run(std::function<void()> tried) {
    TaskGroup watching(executor_);
    watching.spawn(watch());
    for (HeldHost* const host : hosts_) tasks_.spawn(host->run());
    const auto logs_in = [](const auto& host) { return host->state() == HeldState::logging_in; };
    while (std::ranges::any_of(hosts_, logs_in)) co_await changed_.async_wait(use_tuple);
    tried_ = true;
    tried();
    nothing_held_ = std::ranges::all_of(
        hosts_, [](const auto& host) { return host->state() == HeldState::gone; });
    changed_.cancel();
    co_await watching.join();
    server_.stop();
    limits_.stop();
    co_await limits_.join();
    co_await server_.join();
    co_await tasks_.join();
}

/// Leaves hosts whose time is over, and sees which do not answer any more; also while others are still logged into.
asio::awaitable<void> Holder::watch() {
    while (!is_at_end()) {
        const Deadline now = Clock::now();
        const bool due = now >= alive_said_ + kAlivePause;
        if (due) say_alive();
        Deadline next = alive_said_ + kAlivePause;
        for (const auto& host : hosts_) {
            if (host->state() == HeldState::ready && now >= host->ends()) leave(*host);
            const bool is_ready = host->state() == HeldState::ready;
            if (is_ready && now >= host->heard() + kSilenceMax) host->cut("it does not answer");
            const bool is_timed =
                is_ready || (host->state() == HeldState::gone && !host->is_over());
            if (is_timed && host->ends() > now) next = std::min(next, host->ends());
        }
        changed_.expires_at(next);
        co_await changed_.async_wait(use_tuple);
    }
}

/// To keepers, and to jobs that wait for a log-in.
void Holder::say_alive() {
    alive_said_ = Clock::now();
    for (HeldHost* const host : hosts_)
        if (host->state() == HeldState::ready) say(*host, 0, WarmEvent::alive);
    for (auto& [id, caller] : callers_)
        if (caller.host != nullptr && caller.stream == 0) answer(caller, {true, false, {}, {}});
}

bool Holder::is_at_end() const {
    return tried_ && (nothing_held_ || is_over());
}

bool Holder::is_over() const {
    return std::ranges::all_of(hosts_, [](const auto& host) { return host->is_over(); });
}

void Holder::changed(const std::string& key) {
    Held& held = held_.at(key);
    changed_.cancel();
    for (const CallerId id : std::set(held.callers)) {
        Caller& caller = callers_.at(id);
        if (held.host->state() == HeldState::ready && caller.stream == 0) begin(caller);
        if (held.host->state() != HeldState::gone && !held.host->is_awaited()) continue;
        if (!caller.is_answered) answer(caller, {});
        caller_of_.erase(caller.stream);
        use(caller, nullptr);
        server_.shut_down_sending(id);
    }
    look_at_leaving();
}

HeldHost* Holder::find(const std::string& key) {
    const auto found = held_.find(key);
    return found == held_.end() ? nullptr : found->second.host.get();
}

/// \param host  null: of none any more
void Holder::use(Caller& caller, HeldHost* host) {
    if (caller.host != nullptr) held_.at(caller.host->key()).callers.erase(caller.id);
    if (host != nullptr) held_.at(host->key()).callers.insert(caller.id);
    caller.host = host;
    if (host == nullptr) caller.stream = 0;
    server_.forward(caller.id, host);
}

std::vector<HeldStatus> Holder::hosts() const {
    std::vector<HeldStatus> all;
    for (const auto& host : hosts_)
        if (!(host->terms().released && host->state() == HeldState::gone))
            all.push_back(host->status());
    return all;
}

Result<void> Holder::heard(CallerId id, const FrameView& frame) {
    if (const auto found = callers_.find(id); found != callers_.end())
        return pass_input(found->second, frame);
    const auto request = decode<WarmRequest>(frame.payload);
    if (frame.type != FrameType::warm_request || !request)
        return fail(Errc::invalid_input, "a caller's first frame is a request");
    Caller& caller = callers_[id];
    caller.id = id;
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

/// Where the agent is gone, what was on its way to it comes too late.
Result<void> Holder::pass_input(Caller& caller, const FrameView& frame) {
    auto said = decode<WarmStream>(frame.payload);
    const bool is_input =
        frame.type == FrameType::warm_stream && said && said->event == WarmEvent::input;
    if (!is_input) return fail(Errc::invalid_input, "this is no input of an agent");
    if (caller.stream != 0) say(*caller.host, caller.stream, WarmEvent::input, said->bytes);
    ::explicit_bzero(said->bytes.data(), said->bytes.size());
    return {};
}

/// Its job has ended, and so does the lifeline of its agent.
void Holder::left(CallerId id) {
    const auto found = callers_.find(id);
    if (found == callers_.end()) return;
    Caller& caller = found->second;
    if (caller.stream != 0) say(*caller.host, caller.stream, WarmEvent::input_end);
    caller_of_.erase(caller.stream);
    use(caller, nullptr);
    callers_.erase(found);
}

void Holder::answer(Caller& caller, WarmAnswer answer) {
    caller.is_answered = !answer.waits;
    server_.send(caller.id, encode(answer));
}

void Holder::take(Caller& caller, const WarmRequest& request) {
    HeldHost* const host = find(request.key);
    if (host == nullptr || host->terms().released) return answer(caller, {});
    if (request.keep_ms > 0) host->terms().keep = std::chrono::milliseconds(request.keep_ms);
    host->terms().used = Clock::now();
    const bool waits = host->state() == HeldState::logging_in && !host->is_awaited() && !tried_;
    if (!waits && host->state() != HeldState::ready) {
        answer(caller, {});
        if (host->may_log_in_again()) tasks_.spawn(host->run());
        return;
    }
    use(caller, host);
    if (waits) return answer(caller, {true, false, {}, {}});
    begin(caller);
}

void Holder::begin(Caller& caller) {
    const std::uint32_t stream = ++last_stream_;
    caller.stream = stream;
    caller_of_[stream] = caller.id;
    caller.host->streams().insert(stream);
    caller.host->count_agent();
    say(*caller.host, stream, WarmEvent::open);
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
    Caller& caller = callers_.at(found->second);
    if (caller.is_answered) co_return;
    HeldHost& host = *caller.host;
    const bool is_silent = host.heard() < asked;
    refuse(caller);
    if (is_silent && held_.at(host.key()).callers.empty()) host.cut("it does not answer");
}

void Holder::said(const WarmStream& said) {
    const auto found = caller_of_.find(said.stream);
    if (found == caller_of_.end()) return;
    Caller& caller = callers_.at(found->second);
    if (!caller.is_answered) {
        if (said.event == WarmEvent::errors) return caller.early.push_back(encode(said));
        // It does not run: its file is gone, or the host has no room for a process.
        if (said.event != WarmEvent::output) return refuse(caller);
        answer(caller, {false, true, caller.host->seen_as(), {}});
        for (Bytes& early : std::exchange(caller.early, {}))
            server_.send(caller.id, std::move(early));
    }
    server_.send(caller.id, encode(said));
}

/// The caller is to log in by itself.
void Holder::refuse(Caller& caller) {
    HeldHost& host = *caller.host;
    const std::uint32_t stream = caller.stream;
    use(caller, nullptr);
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
    std::vector<HeldHost*> leaving;
    for (HeldHost* const host : hosts_) {
        const bool is_meant =
            request.hosts.empty() || std::ranges::count(request.hosts, host->name()) > 0;
        if (!is_meant) continue;
        release(*host);
        if (host->state() != HeldState::gone) leaving.push_back(host);
    }
    caller.leaving = std::move(leaving);
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

void Holder::end(const std::string& why) {
    for (HeldHost* const host : hosts_) {
        host->terms().released = true;
        host->cut(why);
    }
    changed_.cancel();
}

void Holder::look_at_leaving() {
    for (auto& [id, caller] : callers_) {
        if (caller.leaving.empty() || caller.is_answered) continue;
        const bool is_done = std::ranges::all_of(caller.leaving, [](const HeldHost* host) {
            return host->state() == HeldState::gone || host->jobs() > 0;
        });
        if (!is_done) continue;
        WarmAnswer left;
        for (const HeldHost* const host : caller.leaving) left.hosts.push_back(host->status());
        answer(caller, std::move(left));
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
