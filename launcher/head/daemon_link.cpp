#include "launcher/head/daemon_link.h"

#include "base/log.h"
#include "base/loop/net.h"
#include "base/milliseconds.h"
#include "rendezvous/links/client.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/rank_messages.h"

#include <algorithm>

namespace dtrun::head {
namespace {

constexpr std::chrono::milliseconds kPauseMin{50};
constexpr std::chrono::milliseconds kPauseMax{500};
constexpr std::chrono::seconds kAttemptLimit{2};  // a daemon that is being started may be slow
constexpr std::chrono::seconds kGoodbyeLimit{1};

}  // namespace

DaemonLink::DaemonLink(asio::any_io_executor executor, plan::DaemonTarget target,
                       DaemonLinkOptions options, DaemonLinkEvents& events)
    : executor_(executor),
      target_(std::move(target)),
      options_(options),
      events_(events),
      detector_(executor, options.heartbeat_timeout),
      over_(executor, Timer::time_point::max()) {
    subscribe();
}

void DaemonLink::subscribe() {
    for (const FrameType type : kExchangedDownwards)
        router_.on(type, [this, type](std::string_view payload) {
            return events_.daemon_exchanged({type, payload});
        });
    router_.on(FrameType::heartbeat, [this](std::string_view payload) -> Result<void> {
        const auto heartbeat = decode<Heartbeat>(payload);
        if (!heartbeat) return std::unexpected(heartbeat.error());
        detector_.be_as_patient_as(std::chrono::milliseconds(heartbeat->timeout_ms));
        const auto gathering = gathering_in(payload);
        if (!gathering) return std::unexpected(gathering.error());
        events_.daemon_gathers(*gathering);
        return {};
    });
    router_.on(FrameType::numbered, [this](std::string_view payload) { return numbered(payload); });
    router_.on<Heard>(this, &DaemonLink::heard);
    router_.on<Stop>(this, &DaemonLink::stopped);
    router_.on<Refuse>([](const Refuse& refuse) -> Result<void> {
        return fail(refuse.later ? Errc::closed : Errc::denied, "{}", refuse.reason);
    });
}

asio::awaitable<void> DaemonLink::run(Enter enter) {
    enter_ = std::move(enter);
    running_ = true;
    // Whoever cancels this has called stop(): what has been started here is joined nevertheless.
    co_await asio::this_coro::throw_if_cancelled(false);
    TaskGroup detector(executor_);
    detector.spawn(detector_.run([this] {
        beat();
        return Pace::alert;
    }));
    co_await keep_connected();
    detector.stop();
    co_await detector.join();
    running_ = false;
    over_.cancel();
}

asio::awaitable<void> DaemonLink::keep_connected() {
    auto connection = co_await connect_first();
    Result<void> served;
    while (connection) {
        link_ = std::make_shared<Link>(std::move(*connection));
        TaskGroup writer(executor_);
        writer.spawn(link_->run_writer());
        enter_.heard = heard_.last();
        link_->send(encode(enter_));
        events_.daemon_is_back();
        served = co_await serve();
        is_let_in_ = false;
        link_->close();
        co_await writer.join();
        if (ended_ || is_leaving_) break;
        if (silent_ || served.error().code == Errc::denied) break;
        log::info("{}: {}; connecting again", target_.name, served.error().message);
        connection = co_await connect(after(options_.return_limit));
        if (connection) log::info("{} is back", target_.name);
    }
    if (is_leaving_ || ended_) co_return;
    give_up(connection ? served.error() : connection.error());
}

void DaemonLink::give_up(const Error& why) {
    events_.daemon_lost({why.code, fmt::format("{}: {}", target_.name, why.message)});
}

/// Finds the daemon's addresses, unless they are known. A name server that does not answer is asked once.
asio::awaitable<Result<void>> DaemonLink::look_up(Deadline limit) {
    if (!target_.addresses.empty()) co_return Result<void>{};
    if (!pool_) pool_ = std::make_unique<transport::Pool>(1);
    events_.daemon_is_awaited({Errc::timed_out, target_.host + " is being looked up"}, limit);
    auto found = co_await transport::look_up(*pool_, target_.host, limit);
    if (!found) co_return fail(Errc::unreachable, "{}: {}", target_.host, found.error().message);
    for (const asio::ip::address& address : *found) target_.addresses.push_back(numeric(address));
    co_return Result<void>{};
}

asio::awaitable<Result<Connection>> DaemonLink::attempt(Deadline limit) {
    const auto known = co_await look_up(limit);
    if (!known) co_return std::unexpected(known.error());
    const Deadline until = std::min(limit, after(options_.connect_timeout));
    co_return co_await connect_to_server(target_.addresses, target_.port, target_.credentials,
                                         until);
}

/// Where nobody need be yet, tries again until somebody is; a refusal is final.
asio::awaitable<Result<Connection>> DaemonLink::connect_first() {
    const bool may_come = options_.first_limit.count() > 0;
    const Deadline limit = after(may_come ? options_.first_limit : options_.connect_timeout);
    std::chrono::milliseconds pause = kPauseMin;
    for (;;) {
        auto connection = co_await attempt(limit);
        if (connection || is_leaving_) co_return connection;
        if (!may_come) co_return connection;
        const Error& why = connection.error();
        if (why.message.find("does not know the job's secret") != std::string::npos)
            co_return fail(
                Errc::denied,
                "{}: the nodes' secrets differ; copy ~/.config/dtrun/secret from that node, "
                "or name the same file on every node in DTRUN_SECRET_FILE",
                why.message);
        if (why.code == Errc::denied) co_return connection;
        if (Clock::now() + pause > limit)
            co_return fail(why.code, "{}, for {}{}", why.message, in_seconds(options_.first_limit),
                           options_.is_node ? "; start the same command on that node, too" : "");
        events_.daemon_is_awaited(why, limit);
        Timer timer(executor_, pause);
        co_await timer.async_wait(use_tuple);
        pause = std::min(pause * 2, kPauseMax);
    }
}

/// Tries again until `limit`. A refusal before authentication is not final: another program may
/// have taken the daemon's port while the daemon is away.
asio::awaitable<Result<Connection>> DaemonLink::connect(Deadline limit) {
    std::chrono::milliseconds pause = kPauseMin;
    for (;;) {
        const Deadline attempt = std::min(limit, after(kAttemptLimit));
        auto connection = co_await connect_to_server(target_.addresses, target_.port,
                                                     target_.credentials, attempt);
        if (connection || is_leaving_) co_return connection;
        if (Clock::now() + pause > limit)
            co_return fail(connection.error(), "did not come back within {:.3g} s",
                           std::chrono::duration<double>(options_.return_limit).count());
        events_.daemon_is_awaited(connection.error(), limit);
        Timer timer(executor_, pause);
        co_await timer.async_wait(use_tuple);
        pause = std::min(pause * 2, kPauseMax);
    }
}

/// \return why it ended, always an error
asio::awaitable<Result<void>> DaemonLink::serve() {
    const std::function<Result<void>(const FrameView&)> handle = [this](const FrameView& frame) {
        return router_.route(frame);
    };
    const auto served = co_await link_->serve(handle);
    if (!silent_) co_return served;
    co_return fail(Errc::timed_out, "{}",
                   describe_silence(std::chrono::duration_cast<std::chrono::milliseconds>(
                       Clock::now() - link_->last_heard())));
}

/// What the daemon has to say to the agent, or that it has ended the job.
Result<void> DaemonLink::numbered(std::string_view payload) {
    const auto done = heard_.take(payload, [this](const FrameView& frame) -> Result<void> {
        if (frame.type != FrameType::stop) return events_.daemon_orders(frame);
        const auto stop = decode<Stop>(frame.payload);
        if (stop) stopped(*stop);
        return stop ? Result<void>() : std::unexpected(stop.error());
    });
    const Bytes heard = encode(Heard{heard_.last()});
    if (done) send(FrameType::heard, payload_of(heard));
    return done;
}

/// The first time on a connection: the daemon has let us in, and has what came over the ones before.
Result<void> DaemonLink::heard(const Heard& heard) {
    if (auto done = sent_.heard(heard.number); !done) return done;
    enter_.again = true;
    if (std::exchange(is_let_in_, true)) return {};
    for (const Bytes& frame : sent_.unheard()) send(FrameType::numbered, payload_of(frame));
    return {};
}

void DaemonLink::stopped(const Stop& stop) {
    if (!std::exchange(ended_, true)) events_.daemon_stopped(stop);
}

void DaemonLink::beat() {
    if (!link_ || !link_->is_open()) return;
    send(FrameType::heartbeat, payload_of(encode(events_.progress())));
    if (!detector_.lost(*link_)) return;
    // A silent daemon whose machine answers may be back soon. If the network is cut, the other
    // hosts go on without us, so the daemon is given up.
    silent_ = !link_->machine_answers();
    if (!silent_) log::info("{} says nothing", target_.name);
    link_->close();
}

void DaemonLink::send(FrameType type, std::string_view payload) {
    if (link_ && link_->is_open()) link_->send_soon(type, payload);
}

asio::awaitable<void> DaemonLink::room() {
    const std::shared_ptr<Link> link = link_;
    if (link) co_await link->room();
}

void DaemonLink::say(const Bytes& frame) {
    const Bytes numbered = sent_.add(frame);
    if (is_let_in_) send(FrameType::numbered, payload_of(numbered));
}

asio::awaitable<void> DaemonLink::leave(std::string why) {
    const bool is_connected = link_ && link_->is_open();
    if (!std::exchange(is_leaving_, true)) say(encode(Leave{false, std::move(why)}));
    if (!running_ || !is_connected) co_return;
    DeadlineGuard guard(over_, after(kGoodbyeLimit));  // the daemon ends the connection
    co_await over_.async_wait(use_tuple);
}

void DaemonLink::stop_waiting() {
    over_.cancel();
}

}  // namespace dtrun::head
