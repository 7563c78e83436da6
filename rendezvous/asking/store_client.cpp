#include "rendezvous/asking/store_client.h"

#include "base/fd.h"
#include "base/milliseconds.h"
#include "rendezvous/links/client.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/member_messages.h"

#include <unistd.h>
#include <algorithm>
#include <utility>

namespace dtrun::asking {
namespace {

constexpr std::chrono::seconds kDialLimit{10};
constexpr std::chrono::milliseconds kRedialPause{200};  // between attempts to connect again
constexpr std::chrono::seconds kPartingLimit{1};

/// Whether a server that is connected to again may answer what this one has not.
bool is_passing(const Error& error) {
    return error.code == Errc::closed || error.code == Errc::unreachable;
}

/// Who has waited for a group of tasks is not cancelled any more by what cancels it. Who asks here may be.
asio::awaitable<void> be_cancellable() {
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
}

}  // namespace

StoreClient::StoreClient(asio::any_io_executor executor, StoreServer server)
    : executor_(std::move(executor)), server_(std::move(server)) {}

asio::awaitable<Result<void>> StoreClient::connect() {
    if (!server_.agent_socket.empty()) co_return co_await connect_to_agent();
    const Deadline limit = after(server_.connect_limit);
    auto done = co_await connect_to_daemon(limit);
    if (!done && done.error().code == Errc::unreachable)
        done.error().message += "; is `dtrun serve` running there?";
    co_return done;
}

asio::awaitable<Result<void>> StoreClient::connect_to_agent() {
    std::string name = server_.agent_socket;
    if (name.starts_with('@')) name.front() = '\0';
    Unix::socket socket(executor_);
    const auto [error] = co_await socket.async_connect(Unix::endpoint(name), use_tuple);
    if (error) co_return fail(Errc::unreachable, "DTRUN_SOCKET: {}", error.message());
    if (const auto other = foreign_user(socket.native_handle()))
        co_return fail(Errc::denied, "DTRUN_SOCKET belongs to user {}, not to us", *other);
    Hello hello;
    hello.pid = ::getpid();
    open(std::make_unique<Link>(std::move(socket)), encode(hello));
    co_return Result<void>{};
}

asio::awaitable<Result<void>> StoreClient::connect_to_daemon(Deadline deadline) {
    const StoreServer::Daemon& daemon = server_.daemon;
    auto connection =
        co_await connect_to_server(daemon.addresses, daemon.port, daemon.credentials, deadline);
    if (!connection) co_return fail(connection.error(), "{}", daemon.name);
    Enter enter;
    enter.member = MemberId{1};
    enter.job_name = daemon.job;
    enter.return_ms = to_ms(server_.return_limit);
    open(std::make_unique<Link>(std::move(*connection)), encode(enter));
    line_->tasks.spawn(line_->detector.run([this] {
        beat();
        return Pace::alert;
    }));
    co_return Result<void>{};
}

void StoreClient::open(std::unique_ptr<Link> link, const Bytes& first) {
    line_ = std::make_shared<Line>(executor_, std::move(link));
    line_->tasks.spawn(line_->link->run_writer());
    line_->link->send(first);
    if (owner_ != 0) tell_of_owner();
}

std::uint64_t StoreClient::own() {
    owner_ = random_id();
    tell_of_owner();
    return owner_;
}

/// Precedes all requests of the owner on each connection. That it is answered tells nothing: what the owner has is
/// in the store, or is not.
void StoreClient::tell_of_owner() {
    line_->link->send(encode_request({owner_, ++owner_id_}, StoreRequest{.op = Op::own}, 0));
}

/// Says that we live, and notices when the daemon does not.
void StoreClient::beat() {
    line_->link->send(encode(Heartbeat{}));
    const auto silence = line_->detector.lost_with_machine(*line_->link);
    if (!silence) return;
    line_->lost = describe_silence(*silence);
    line_->link->close();
}

asio::awaitable<Result<StoreClient::Reply>> StoreClient::ask(StoreRequest request,
                                                             Deadline deadline) {
    ++id_;
    const Deadline begun = Clock::now();
    const std::uint64_t timeout_ms = request.timeout_ms;
    is_given_up_ = false;
    while (!is_given_up_) {
        line_->link->send(encode_request({client_, id_}, request, 0));
        auto reply = co_await next_reply(deadline);
        if (reply || !server_.agent_socket.empty() || !is_passing(reply.error())) co_return reply;
        const auto back = co_await reconnect(reply.error(), deadline);
        if (!back) co_return std::unexpected(back.error());
        // Asked again, it waits no longer than it would have.
        if (timeout_ms < kForeverMs)
            request.timeout_ms =
                timeout_ms - std::min<std::uint64_t>(timeout_ms, to_ms(Clock::now() - begun));
    }
    co_return fail(Errc::cancelled, "{}: given up", server_.name());
}

asio::awaitable<Result<StoreClient::Reply>> StoreClient::next_reply(Deadline deadline) {
    Link& link = *line_->link;
    const Deadline begun = Clock::now();
    Timer limit(executor_, deadline);
    const auto is_over = std::make_shared<bool>(false);
    limit.async_wait([line = line_, is_over](boost::system::error_code error) {
        if (error) return;
        *is_over = true;
        line->link->close();
    });
    for (;;) {
        const auto frame = link.next();
        if (!frame) co_return fail(Errc::internal, "{}: {}", server_.name(), frame.error().message);
        if (!*frame) {
            const auto received = co_await link.receive();
            if (received) continue;
            if (*is_over)
                co_return fail(Errc::timed_out, "{} has not answered for {}", server_.name(),
                               in_seconds(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   Clock::now() - begun)));
            const std::string& lost = line_->lost;
            co_return fail(Errc::closed, "{}: {}", server_.name(),
                           lost.empty() ? received.error().message : lost);
        }
        if ((*frame)->type == FrameType::refuse) {
            const auto refuse = decode<Refuse>((*frame)->payload);
            const bool later = refuse && refuse->later;
            const std::string why = refuse ? refuse->reason : "refused";
            const Errc code = later ? Errc::closed : Errc::cancelled;
            co_return fail(code, "{}: {}", server_.name(), why);
        }
        if ((*frame)->type == FrameType::heartbeat) {
            const auto heartbeat = decode<Heartbeat>((*frame)->payload);
            if (heartbeat && heartbeat->timeout_ms != 0)
                line_->detector.be_as_patient_as(std::chrono::milliseconds(heartbeat->timeout_ms));
        }
        if ((*frame)->type != FrameType::reply) continue;
        const auto reply = decode_reply((*frame)->payload);
        if (!reply) co_return fail(Errc::internal, "{}: {}", server_.name(), reply.error().message);
        const bool is_ours = reply->header.client == client_ && reply->header.id == id_;
        if (is_ours) co_return Reply{reply->header.status, Bytes(reply->results)};
    }
}

/// Tries until the deadline, or until the daemon has been away for too long.
asio::awaitable<Result<void>> StoreClient::reconnect(Error why, Deadline deadline) {
    co_await hang_up();
    co_await be_cancellable();
    const Deadline limit = std::min(deadline, after(server_.return_limit));
    Timer pause(executor_);
    for (;;) {
        if (is_given_up_) co_return fail(Errc::cancelled, "{}: given up", server_.name());
        if (Clock::now() + kRedialPause >= limit)
            co_return fail(Errc::unreachable, "{}; it did not come back in time", why.message);
        pause.expires_after(kRedialPause);
        co_await pause.async_wait(use_tuple);
        const Deadline attempt = std::min(limit, after(kDialLimit));
        const auto done = co_await connect_to_daemon(attempt);
        co_await be_cancellable();
        if (is_given_up_) co_return fail(Errc::cancelled, "{}: given up", server_.name());
        if (done || done.error().code == Errc::denied) co_return done;
        why = done.error();
    }
}

asio::awaitable<void> StoreClient::hang_up() {
    if (!line_) co_return;
    line_->link->close();
    line_->tasks.stop();
    co_await line_->tasks.join();
}

asio::awaitable<void> StoreClient::close() {
    if (line_ && line_->link->is_open()) {
        Link& link = *line_->link;
        Timer limit(executor_, after(kPartingLimit));
        limit.async_wait([line = line_](boost::system::error_code error) {
            if (!error) line->link->close();
        });
        link.send(encode(Gone{client_}));  // answers need not be kept for us
        if (owner_ != 0) link.send(encode(Gone{owner_}));
        co_await link.flush();
        link.shut_down_sending();
    }
    co_await hang_up();
}

}  // namespace dtrun::asking
