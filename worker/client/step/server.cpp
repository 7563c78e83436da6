#include "worker/client/step/server.h"

#include "base/fd.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/client/connect/handshake.h"

#include <signal.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace dtrun::embedded {
namespace {

constexpr std::uint64_t kDescriptorsOfOthers = 128;  // helpers, strangers, and the program's own
/// How long the end waits for peers that do not read their last frames.
constexpr std::chrono::seconds kEndTime{1};

/// Every rank has a connection to us. Takes more descriptors than usual only if they are needed.
/// Failures: internal
Outcome<void> allow_descriptors(std::uint32_t ranks) {
    const std::uint64_t needed = ranks + kDescriptorsOfOthers;
    raise_descriptor_limit(needed);
    const std::uint64_t most = descriptor_limit();
    if (most < needed)
        return failure(DTRUN_INTERNAL,
                       "rank 0 needs {} descriptors to serve {} ranks, and may have {} at most "
                       "(ulimit -Hn)",
                       needed, ranks, most);
    return {};
}

}  // namespace

StepServer::StepServer(const SlurmStep& step)
    : step_(step),
      roster_(step.ranks),
      listener_(poll_),
      hub_(*this, HubOptions{}),
      peers_(poll_, *this) {
    hub_.begin(1, step.ranks);
}

Outcome<std::unique_ptr<StepServer>> StepServer::start(const SlurmStep& step, StepKey& key) {
    if (auto allowed = allow_descriptors(step.ranks); !allowed)
        return std::unexpected(allowed.error());
    std::unique_ptr<StepServer> server(new StepServer(step));
    if (!server->poll_.is_ready()) return failure(DTRUN_INTERNAL, "{}", strerror(errno));
    auto greeting = key.make_greeting();
    if (!greeting) return std::unexpected(greeting.error());
    server->greeting_ = std::move(*greeting);
    const auto port = server->listener_.listen(key.ports());
    if (!port)
        return failure(DTRUN_CLOSED, "none of the ports of step {} is free: {}", step.id,
                       strerror(errno));
    server->credentials_ = key.credentials_at({step.node, *port});
    if (auto added = server->add_own_end(); !added) return std::unexpected(added.error());

    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // handlers run in the program's threads
    std::string problem;
    try {
        server->thread_ = std::thread(&StepServer::run, server.get());
    } catch (const std::system_error& error) {
        problem = error.what();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!problem.empty()) return failure(DTRUN_INTERNAL, "thread: {}", problem);
    return server;
}

StepServer::~StepServer() {
    if (!thread_.joinable()) return;
    roster_.stop();
    poll_.wake();
    thread_.join();
}

Outcome<void> StepServer::add_own_end() {
    auto [ours, theirs] = private_socket_pair();
    if (!ours) return failure(DTRUN_INTERNAL, "socketpair: {}", strerror(errno));
    own_end_ = std::move(theirs);
    enter(peers_.add(std::move(ours)), Rank{0});
    return {};
}

std::optional<std::string> StepServer::end_if_missing(std::chrono::milliseconds waited) {
    auto missing = roster_.end_if_missing(waited);
    if (missing) poll_.wake();
    return missing;
}

void StepServer::end(std::string why) {
    roster_.end(std::move(why));
    poll_.wake();
}

Outcome<void> StepServer::wait_for_others(const WaitContext& context) {
    return roster_.wait_for_others(context);
}

void StepServer::run() {
    try {
        flush();
        while (!is_over()) turn();
    } catch (const std::exception&) {
        // Out of memory. The program may not be: it and the others find their connections closed.
    }
    peers_.clear();
    listener_.close();
    roster_.all_go();
}

bool StepServer::is_over() {
    if (ending_) return peers_.all().empty() || now() >= *ending_;
    return roster_.is_stopped();
}

/// Waits until something happens, and deals with all that has.
void StepServer::turn() {
    const auto events = poll_.wait(next_moment());
    take_orders();  // before what their giver has done next
    listener_.resume(now());
    for (const epoll_event& event : events) {
        const std::uint64_t what = event.data.u64;
        if (what == StepPoll::kListener) {
            accept_all();
        } else {
            peers_.on_ready(static_cast<PeerId>(what), event.events);
        }
    }
    hub_.expire(now());
    cut_off_late_strangers();
    peers_.hear_the_full();
    flush();
}

void StepServer::flush() {
    peers_.flush_all();
    last_fenced_.reset();
}

void StepServer::take_orders() {
    const auto why = roster_.take_end();
    if (why && !ending_) end_now(*why);
}

/// Tells all peers that the job is over, and goes on until they have closed, for kEndTime at most.
void StepServer::end_now(const std::string& why) {
    ending_ = now() + kEndTime;
    listener_.close();
    peers_.finish();
    if (welcomed_) hub_.fail_fences(why);
    for (const auto& [id, peer] : peers_.all()) {
        if (peer->is_stranger()) continue;
        if (welcomed_)
            send(*peer, encode(Stop{0, 0, why}));
        else
            send(*peer, encode(Refuse{why, false}));
    }
}

Moment StepServer::next_moment() const {
    Moment next = std::min(hub_.next_deadline(), listener_.next());
    if (ending_) next = std::min(next, *ending_);
    return std::min({next, peers_.next(), unauthenticated_.next()});
}

void StepServer::accept_all() {
    for (;;) {
        if (const auto excess = unauthenticated_.excess()) peers_.lose(*excess);
        auto socket = listener_.accept();
        if (socket && !*socket) return;
        roster_.set_problem(socket ? ""
                                   : fmt::format(" (rank 0: accept: {})", socket.error().text));
        if (!socket) return;
        StepPeer& peer = peers_.add(std::move(*socket));
        const auto secret_of = [this](const JobId& job) {
            return job == credentials_.job ? std::optional(credentials_.secret) : std::nullopt;
        };
        peer.handshake.emplace(secret_of, HandshakeTerms{.words = kHandshakeWords});
        unauthenticated_.add(peer.id, now() + kHandshakeTime);
        send(peer, greeting_);
    }
}

void StepServer::cut_off_late_strangers() {
    while (const auto late = unauthenticated_.late(now())) peers_.lose(*late);
}

void StepServer::to_peer(PeerId id, FrameType type, std::string_view payload) {
    StepPeer* peer = peers_.find(id);
    if (peer == nullptr) return;
    if (type != FrameType::fenced)
        return peers_.send(*peer, std::make_shared<const Bytes>(encode_frame(type, payload)),
                           type == FrameType::reply);
    if (!last_fenced_ || payload_of(*last_fenced_) != payload)
        last_fenced_ = std::make_shared<const Bytes>(encode_frame(type, payload));
    peers_.send(*peer, last_fenced_, false);
}

void StepServer::send(StepPeer& peer, Bytes bytes) {
    peers_.send(peer, std::make_shared<const Bytes>(std::move(bytes)), false);
}

}  // namespace dtrun::embedded
