#include "worker/client/client.h"

#include "base/ids.h"
#include "rendezvous/member_messages.h"

#include <signal.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::seconds kLeaveTime{1};
constexpr std::chrono::seconds kPatienceForRank0{10};

}  // namespace

void Client::Waiter::finish() {
    done = true;
    wake.notify_one();
}

Client::Client(Surroundings surroundings, std::optional<Credentials> credentials, Role role)
    : surroundings_(std::move(surroundings)),
      credentials_(std::move(credentials)),
      role_(role),
      pid_(::getpid()),
      client_id_(random_id()),
      member_id_(MemberId{random_id()}),
      standing_(surroundings_.place) {
    if (!surroundings_.step) return;
    SlurmStep step = *surroundings_.step;
    if (step.node.empty()) step.node = surroundings_.place.host_name;
    step_.emplace(std::move(step));
}

Client::~Client() {
    if (!thread_.joinable()) return;
    {
        const Lock lock(mutex_);
        stopping_ = true;
        tick_.notify_one();
    }
    thread_.join();
}

bool Client::is_served() const {
    return has_daemon() || launcher() == Launcher::agent || (in_step() && !step_->unmet());
}

Failure Client::unserved() const {
    if (in_step() && step_->unmet()) {
        const Failure& why = *step_->unmet();
        return {why.code,
                fmt::format("the ranks of step {} cannot meet: {}", step_->step_id(), why.text)};
    }
    return {DTRUN_NO_LAUNCHER,
            fmt::format("nobody serves a store here: start the program with dtrun, or run `dtrun "
                        "serve` and set DTRUN_SERVE, DTRUN_JOB_NAME and DTRUN_SECRET_FILE "
                        "(launcher: {})",
                        launcher_name(launcher()))};
}

bool Client::is_member() const {
    return surroundings_.launcher == Launcher::daemon && role_ == Role::rank;
}

Place Client::place() const {
    const Lock lock(mutex_);
    return standing_.place();
}

Surroundings Client::inherited() const {
    Surroundings surroundings = surroundings_;
    surroundings.place = standing_.place();
    return surroundings;
}

Outcome<FrameSocket> Client::dial(const Patience& patience, bool again) {
    if (has_daemon()) return dial_daemon(*surroundings_.daemon, *credentials_, again, patience);
    if (in_step()) return step_->meet(hello(), patience);
    return FrameSocket::connect_unix(surroundings_.socket);
}

Hello Client::hello() const {
    Hello hello;
    hello.rank = role_ == Role::rank ? surroundings_.place.rank : kNoRank;
    hello.generation = generation();
    hello.pid = pid_;
    return hello;
}

/// What a connection begins with: who is there.
Bytes Client::opening_frame() const {
    if (!has_daemon()) return encode(hello());
    const DaemonAddress& daemon = *surroundings_.daemon;
    Enter enter;
    enter.member = member_id_;
    enter.job_name = daemon.job_name;
    enter.name = surroundings_.place.host_name;
    enter.address = local_address(socket_);
    enter.return_ms = static_cast<std::uint32_t>(daemon.timeout_ms);
    if (is_member()) {
        enter.generation = generation();
        enter.paused = standing_.awaited();
        enter.slots = 1;
        enter.ranks_min = daemon.ranks_min;
        enter.ranks_max = daemon.ranks_max;
    }
    return encode(enter);
}

Outcome<void> Client::start(const Patience& patience) {
    if (!is_served()) return {};
    Patience dialling = patience;
    if (has_daemon())
        dialling.deadline =
            std::min(dialling.deadline, moment_after(surroundings_.daemon->timeout_ms));
    Outcome<FrameSocket> socket = dial(dialling, false);
    if (!is_served()) return {};  // the ranks of our step cannot meet
    if (!socket) return std::unexpected(socket.error());
    Bytes opening;
    {
        const Lock lock(mutex_);
        socket_ = std::move(*socket);
        if (!in_step()) opening = opening_frame();  // there it was said while we met
        set_connected(true);
        heard_ = lost_since_ = now();
    }
    if (const auto sent = socket_.send(opening); !sent && !has_daemon())
        return failure(DTRUN_CLOSED, "agent: {}", sent.error().text);
    if (has_daemon()) {
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);  // handlers run in the program's threads
        thread_ = std::thread(&Client::keep_alive, this);
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (!is_member()) return {};
    }
    return take_place(patience);
}

/// Waits until we are welcome.
Outcome<void> Client::take_place(const Patience& patience) {
    const Moment begun = now();
    Patience longer = patience;
    if (in_step() && !step_->serves() && longer.deadline != Moment::max())
        longer.deadline += kPatienceForRank0;  // it may say who is missing
    Lock lock(mutex_);
    const auto is_placed = [this] { return standing_.is_placed(); };
    const auto placed = wait_until(lock, is_placed, longer);
    if (placed || !in_step()) return placed;
    lock.unlock();
    const auto waited = std::chrono::ceil<std::chrono::milliseconds>(now() - begun);
    const auto explained = step_->explain(placed.error(), waited);
    lock.lock();
    if (!explained) {
        if (step_->serves()) close(explained.error());
        return explained;
    }
    return wait_until(lock, is_placed, {now() + kPatienceForRank0, {}});
}

void Client::leave(std::string_view failure, std::function<bool()> give_up) {
    if (has_daemon() || (in_step() && role_ == Role::rank)) send_leave(failure);
    {
        const Lock lock(mutex_);
        close({DTRUN_CLOSED, "the worker is finalized"});
    }
    callers_.wait_until_none();
    if (in_step()) step_->leave(failure, std::move(give_up));
}

void Client::send_leave(std::string_view failure) {
    const std::lock_guard sending(send_mutex_);
    {
        const Lock lock(mutex_);
        if (!connected_) return;
        ending_ = true;
    }
    // A daemon need not keep what it has answered us any longer.
    if (has_daemon() && !socket_.send(encode(Gone{client_id_}))) return;
    if ((is_member() || in_step()) &&
        !socket_.send(encode(Leave{failure.empty(), std::string(failure)})))
        return;
    // If we closed a connection with unread bytes, TCP would discard what the other side has not
    // read yet.
    Lock lock(mutex_);
    if (reading_) return;
    reading_ = true;
    lock.unlock();
    socket_.finish(now() + kLeaveTime);
}

/// Waits until `waiter` is done. A waiting thread that finds no other one reading reads for all;
/// when it leaves, it wakes another one to take over.
/// Failures: the waiter's, timed_out, cancelled, and why the connection is closed
Outcome<void> Client::wait(Lock& lock, Waiter& waiter, const Patience& patience) {
    waiters_.push_back(&waiter);
    Outcome<void> outcome;
    while (!waiter.done && !closed_) {
        bool ask = false;
        if (connected_ && !reading_) {
            ask = read_once(lock, patience.slice());
        } else if (!patience.over()) {
            const Moment until = patience.slice();
            ask = until != Moment::max()
                      ? waiter.wake.wait_until(lock, until) == std::cv_status::timeout
                      : (waiter.wake.wait(lock), false);
        }
        if (waiter.done || closed_) break;
        if (ask && patience.give_up) {
            lock.unlock();
            const bool stop = patience.give_up();
            lock.lock();
            if (stop && !waiter.done) outcome = failure(DTRUN_CANCELLED, "interrupted");
        }
        if (outcome && !waiter.done && patience.over())
            outcome = failure(DTRUN_TIMED_OUT, "timed out");
        if (!outcome) break;
    }
    std::erase(waiters_, &waiter);
    if (!reading_ && !waiters_.empty()) waiters_.front()->wake.notify_one();
    if (waiter.done) {
        if (waiter.failure) return std::unexpected(*waiter.failure);
        return {};
    }
    if (!outcome) return outcome;
    return std::unexpected(*closed_);
}

/// Waits until ready(), which is looked at whenever anything has changed.
template <class Ready>
Outcome<void> Client::wait_until(Lock& lock, Ready ready, const Patience& patience) {
    while (!ready()) {
        Waiter waiter;
        listeners_.push_back(&waiter);
        const auto waited = wait(lock, waiter, patience);
        std::erase(listeners_, &waiter);
        if (!waited && !ready()) return waited;
    }
    return {};
}

void Client::wake_listeners() {
    for (Waiter* listener : listeners_) listener->finish();
}

/// Reads what comes until then, and hands it out.
/// \return whether nothing came: a signal, or it is time
bool Client::read_once(Lock& lock, Moment until) {
    reading_ = true;
    lock.unlock();
    const FrameSocket::Got got = socket_.receive(until);
    lock.lock();
    reading_ = false;
    if (got == FrameSocket::Got::bytes) {
        heard_ = now();
        answered_ = true;
        dispatch();
    } else if (got == FrameSocket::Got::end) {
        lose(in_step() ? "rank 0, which serves the step, has ended"
                       : "the other side has closed the connection");
    }
    return got == FrameSocket::Got::nothing || got == FrameSocket::Got::signal;
}

/// Handles a broken connection: our thread reconnects to a daemon, any other connection is closed
/// for good.
void Client::lose(std::string text) {
    if (!connected_) return;
    set_connected(false);
    if (answered_) lost_since_ = now();
    if (!has_daemon() || ending_)
        close({DTRUN_CLOSED, std::move(text)});
    else
        tick_.notify_one();
}

/// Closes the client for good: calls that wait and all later ones fail with `why`.
void Client::close(Failure why) {
    if (closed_) return;
    closed_ = std::move(why);
    socket_.shut_down();
    for (Waiter* waiter : waiters_) waiter->wake.notify_one();
    tick_.notify_one();
    events_.close();
}

/// Requires send_mutex_ and no other lock. Without a connection nothing is lost: requests that wait
/// for an answer are sent again after reconnecting, and the thread that receives notices a broken
/// connection.
void Client::send_if_connected(const Bytes& frame) {
    {
        const Lock lock(mutex_);
        if (!connected_) return;
    }
    (void)socket_.send(frame);
}

Outcome<Event> Client::next_event(const Patience& patience) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "events are for the rank's own process");
    if (!is_served()) return failure(DTRUN_NO_LAUNCHER, "without dtrun nobody announces events");
    Lock lock(mutex_);
    const auto come = [this] { return !events_.empty(); };
    if (const auto waited = wait_until(lock, come, patience); !waited)
        return std::unexpected(waited.error());
    return events_.take();
}

Outcome<int> Client::event_fd() {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "events are for the rank's own process");
    if (!is_served()) return failure(DTRUN_NO_LAUNCHER, "without dtrun nobody announces events");
    const Lock lock(mutex_);
    return events_.fd();
}

void Client::set_connected(bool connected) {
    connected_ = connected;
    if (connected)
        events_.watch(socket_.fd());
    else
        events_.unwatch();
}

Outcome<void> Client::rejoin(const Patience& patience) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "only the rank's own process can rejoin");
    if (!is_member())
        return failure(DTRUN_REFUSED,
                       "ranks of '{}' keep their place: only members of a daemon can rejoin",
                       launcher_name(launcher()));
    Lock lock(mutex_);
    const std::uint64_t left = generation();
    while (generation() == left) {
        const std::uint64_t seen = standing_.accepted();
        const auto ready = [&] {
            return generation() != left || standing_.is_proposed_after(seen);
        };
        if (const auto waited = wait_until(lock, ready, patience); !waited) return waited;
        if (generation() != left) break;
        const Bytes frame = encode(Accept{standing_.accept()});
        lock.unlock();
        {
            const std::lock_guard sending(send_mutex_);
            send_if_connected(frame);
        }
        lock.lock();
    }
    return {};
}

}  // namespace dtrun::embedded
