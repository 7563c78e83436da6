#include "worker/agent/connections.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/accept.h"
#include "rendezvous/links/refuse.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/handshake_records.h"
#include "rendezvous/wire/relayed.h"
#include "rendezvous/wire/start_messages.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace dtrun::agent {
namespace {

/// For the process that a rank's next connection comes from, or for this one to end.
constexpr std::chrono::seconds kFinalizeGrace{1};
constexpr std::size_t kLargeFrame = 64u << 10;

/// The process at the other end.
pid_t peer_pid(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return peer.pid;
}

/// A descriptor that becomes readable when the process ends; empty if it has.
Fd open_process(pid_t pid) {
    return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool has_ended(const Fd& process) {
    pollfd watched{process.get(), POLLIN, 0};
    return ::poll(&watched, 1, 0) > 0;
}

}  // namespace

Connections::Connections(asio::any_io_executor executor, Link& head, Router<>& from_head,
                         ForRanks for_ranks, std::function<void()> agents_gone)
    : executor_(executor),
      head_(head),
      for_ranks_(std::move(for_ranks)),
      agents_gone_(std::move(agents_gone)),
      relay_(*this),
      rank_acceptor_(executor),
      tasks_(executor),
      watches_(executor) {
    for (const FrameType type : kExchangedDownwards)
        from_head.on(type, [this, type](std::string_view payload) {
            return relay_.from_root({type, payload});
        });
    from_head.on<Heartbeat>([](const Heartbeat&) {});  // a sign of life
    from_head.on(FrameType::relayed,
                 [this](std::string_view payload) { return pass_down(payload); });
    for (const FrameType type : kExchangedByRanks)
        from_ranks_.on(type, [this, type](PeerId peer, std::string_view payload) {
            return relay_.from_peer(peer, {type, payload}, Clock::now());
        });
}

Result<std::string> Connections::open_for_ranks() {
    auto name = listen_at_own_name(rank_acceptor_, "ranks");
    if (name) tasks_.spawn(accept_ranks());
    return name;
}

std::function<void(FrameType, std::string_view)> Connections::open_for_agent(
    PeerKind kind, std::function<Result<void>(const FrameView&)> take) {
    const PeerId peer = ++last_peer_;
    own_peers_[peer] = std::move(take);
    relay_.add_peer(peer, kind, kNoRank);
    return [this, peer](FrameType type, std::string_view payload) {
        const auto passed_up = relay_.from_peer(peer, {type, payload}, {});
        if (!passed_up) log::warn("our own request: {}", passed_up.error().message);
    };
}

Result<std::uint16_t> Connections::open_for_agents(const Credentials& credentials,
                                                   const std::vector<std::string>& addresses) {
    const auto secret_of = [credentials](const JobId& job) {
        return job == credentials.job ? std::optional(credentials.secret) : std::nullopt;
    };
    const auto admit = [this](const JobId&, Connection connection) {
        auto peer = std::make_unique<Peer>(std::move(connection), ++last_peer_);
        peer->is_agent = true;
        start(std::move(peer));
    };
    ServerOptions options;
    options.encrypt = credentials.encrypt;
    agent_server_ = std::make_unique<Server>(executor_, secret_of, admit, options);
    if (!addresses.empty()) return agent_server_->listen(addresses, 0);
    auto port = agent_server_->listen({"::"}, 0);
    if (!port) port = agent_server_->listen({"0.0.0.0"}, 0);  // no IPv6 here
    return port;
}

asio::awaitable<void> Connections::accept_ranks() {
    AcceptTrouble trouble("the socket for ranks");
    for (;;) {
        auto socket = co_await accept_next(rank_acceptor_, trouble);
        if (!socket) co_return;
        const int fd = socket->native_handle();
        if (const auto user = foreign_user(fd)) {
            turned_away(fmt::format("refused a process at the socket for ranks: it runs as user {}",
                                    *user));
            continue;
        }
        auto peer = std::make_unique<Peer>(std::move(*socket), ++last_peer_);
        peer->socket = fd;
        peer->pid = peer_pid(fd);
        start(std::move(peer));
    }
}

/// Logs some of the refusals: every user of this machine can connect to the socket for ranks.
void Connections::turned_away(const std::string& text) {
    if (const auto times = turned_away_.count())
        log::warn("{}{}", text, *times > 1 ? fmt::format(" ({} times)", *times) : "");
}

void Connections::start(std::unique_ptr<Peer> peer) {
    const PeerId id = peer->id;
    peers_.emplace(id, std::move(peer));
    tasks_.spawn(run_peer(id));
}

asio::awaitable<void> Connections::run_peer(PeerId id) {
    Peer& peer = *peers_.at(id);
    TaskGroup writer(executor_);
    writer.spawn(peer.link.run_writer());
    const std::function<Result<void>(const FrameView&)> handle = [this, &peer](const FrameView& f) {
        return on_frame(peer, f);
    };
    const auto served = co_await peer.link.serve(handle, &head_);
    const Error& why = served.error();
    if (!peer.is_agent && why.code == Errc::invalid_input)
        turned_away(fmt::format("cut off a process at the socket for ranks: {}", why.message));
    const bool is_refused = peer.is_agent && !peer.host && why.code == Errc::invalid_input;
    if (is_refused) co_await refuse(peer.link, why.message);
    if (why.code != Errc::cancelled) {
        agent_lost(peer, why.message);
        co_await peer.link.flush();
    }
    relay_.remove_peer(id);
    if (!peer.is_agent) for_ranks_.left(id);
    peer.socket = -1;
    peer.link.close();
    co_await writer.join();
    const auto [rank, pid] = std::pair(peer.rank, peer.pid);
    peers_.erase(id);
    if (rank != kNoRank && why.code == Errc::closed) watches_.spawn(watch_finalized(rank, pid));
}

/// Says that a rank is away when it has finalized its worker and lives on: others are not to wait long for
/// it. It is back when it says hello again, or when its process has ended: then another process may take
/// the rank's place, and otherwise the rank's end is reported.
asio::awaitable<void> Connections::watch_finalized(Rank rank, pid_t pid) {
    Fd process = open_process(pid);
    if (!process) co_return;
    const std::uint64_t generation = relay_.generation();
    Timer grace(executor_, kFinalizeGrace);
    const auto [error] = co_await grace.async_wait(use_tuple);
    if (error || has_ended(process) || is_connected(rank) || generation != relay_.generation())
        co_return;
    relay_.away(rank, fmt::format("rank {} has finalized its worker", rank));
    auto& ended = away_.insert_or_assign(rank, Ended(executor_, process.release())).first->second;
    const auto [is_back] = co_await ended.async_wait(Ended::wait_read, use_tuple);
    if (!is_back) back(rank);
}

void Connections::back(Rank rank) {
    if (away_.erase(rank) > 0) relay_.back(rank);
}

bool Connections::is_connected(Rank rank) const {
    return std::ranges::any_of(peers_,
                               [rank](const auto& peer) { return peer.second->rank == rank; });
}

Result<void> Connections::on_frame(Peer& peer, const FrameView& frame) {
    if (!std::exchange(peer.greeted, true)) return first_frame(peer, frame);
    if (peer.is_agent) return from_agent(peer, frame);
    return from_ranks_.route(peer.id, frame);
}

Result<void> Connections::first_frame(Peer& peer, const FrameView& frame) {
    if (peer.is_agent) {
        const auto join = decode<Join>(frame.payload);
        if (frame.type != FrameType::join || !join)
            return fail(Errc::invalid_input, "an agent's first frame is join");
        if (!agents_.emplace(join->host, peer.id).second)
            return fail(Errc::invalid_input, "host {} is connected already", join->host);
        peer.host = join->host;
        relay_.add_peer(peer.id, PeerKind::subtree, kNoRank);
        return from_agent(peer, frame);
    }
    const auto hello = decode<Hello>(frame.payload);
    if (frame.type != FrameType::hello || !hello)
        return fail(Errc::invalid_input, "a rank's first frame is hello");
    Result<std::optional<Welcome>> answer;
    if (ProtocolVersions{}.knows(hello->protocol))
        answer = for_ranks_.greet(peer.id, *hello);
    else
        answer = fail(Errc::denied, "it speaks protocol {}, this is {}", hello->protocol,
                      kProtocolVersion);
    if (!answer) {
        peer.link.send(encode(Refuse{answer.error().message, false}));
        return std::unexpected(answer.error());
    }
    if (*answer) welcome(peer.id, **answer);
    return {};
}

void Connections::welcome(PeerId id, const Welcome& welcome) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || found->second->socket < 0) return;
    Peer& peer = *found->second;
    peer.rank = welcome.rank;
    if (std::exchange(peer.placed, true))
        relay_.renumber(id, welcome.rank);
    else
        relay_.add_peer(id, PeerKind::rank, welcome.rank);
    back(welcome.rank);
    peer.link.send(encode(welcome));
}

void Connections::send(PeerId id, Bytes frame) {
    const auto found = peers_.find(id);
    if (found != peers_.end()) found->second->link.send(std::move(frame));
}

bool Connections::send_descriptors(PeerId id, std::string_view frame,
                                   std::span<const int> descriptors) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || found->second->socket < 0) return false;
    iovec bytes{const_cast<char*>(frame.data()), frame.size()};
    std::vector<std::byte> control(CMSG_SPACE(descriptors.size_bytes()));
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
    const ssize_t sent = ::sendmsg(found->second->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return std::cmp_equal(sent, frame.size());
}

Rank Connections::rank_of(PeerId id) const {
    const auto found = peers_.find(id);
    return found == peers_.end() ? kNoRank : found->second->rank;
}

Result<void> Connections::from_agent(Peer& peer, const FrameView& frame) {
    if (frame.type == FrameType::heartbeat) {
        const auto heartbeat = decode<Heartbeat>(frame.payload);
        if (heartbeat) peer.link.set_peer_busy(heartbeat->busy);
    }
    if (is_exchanged(frame.type)) return relay_.from_peer(peer.id, frame, {});
    head_.send_soon(FrameType::relayed, encode_relayed(*peer.host, frame.type, frame.payload));
    if (frame.type == FrameType::done) {
        forget_agent(peer);
        peer.link.close();  // it waits for this
    }
    return {};
}

void Connections::agent_lost(Peer& peer, const std::string& why) {
    if (!peer.host) return;
    head_.send(encode(RelayLost{*peer.host, why}));
    forget_agent(peer);
}

void Connections::forget_agent(Peer& peer) {
    agents_.erase(*peer.host);
    peer.host.reset();
    if (agents_.empty()) agents_gone_();
}

Result<void> Connections::pass_down(std::string_view relayed) {
    const auto inner = decode_relayed(relayed);
    if (!inner) return std::unexpected(inner.error());
    const auto agent = agents_.find(inner->host);
    if (agent == agents_.end()) return {};
    to_peer(agent->second, inner->frame.type, inner->frame.payload);
    return {};
}

void Connections::say_alive(bool busy) {
    Heartbeat heartbeat = relay_.summary();
    heartbeat.busy = busy;
    const Bytes up = encode(heartbeat);
    to_root(FrameType::heartbeat, payload_of(up));
}

bool Connections::beat(const FailureDetector& detector) {
    const Bytes down = encode(Heartbeat{});
    bool is_any_late = false;
    for (const auto& [host, id] : std::map(agents_)) {
        Peer& peer = *peers_.at(id);
        to_peer(id, FrameType::heartbeat, std::string_view(down).substr(FrameHeader::kBytes));
        is_any_late = is_any_late || detector.is_late(peer.link);
        const auto silence = detector.lost(peer.link);
        if (!silence) continue;
        agent_lost(peer, describe_silence(*silence));
        peer.link.close();
    }
    return is_any_late;
}

void Connections::to_peer(PeerId peer, FrameType type, std::string_view payload) {
    if (own_peers_.contains(peer)) return to_own_peer(peer, type, payload);
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    // An agent below may get many frames in one turn of the loop, a rank seldom more than one.
    if (found->second->is_agent)
        found->second->link.send_soon(type, payload);
    else
        found->second->link.send(type, payload);
}

/// Delivers from the event loop: the relay must first finish the call that it is in.
void Connections::to_own_peer(PeerId peer, FrameType type, std::string_view payload) {
    if (type != FrameType::reply && type != FrameType::fenced) return;
    asio::post(executor_, [this, peer, type, bytes = Bytes(payload)] {
        const auto taken = own_peers_.at(peer)({type, bytes});
        if (!taken) log::warn("answer to our own request: {}", taken.error().message);
    });
}

/// Small frames of one turn of the loop go together. A large one would be copied for that.
void Connections::to_root(FrameType type, std::string_view payload) {
    if (payload.size() < kLargeFrame)
        head_.send_soon(type, payload);
    else
        head_.send(type, payload);
}

void Connections::stop() noexcept {
    boost::system::error_code ignored;
    rank_acceptor_.close(ignored);
    if (agent_server_) agent_server_->stop();
    for (const auto& [id, peer] : peers_) peer->link.close();
    watches_.stop();
}

asio::awaitable<void> Connections::join() {
    if (agent_server_) co_await agent_server_->join();
    co_await tasks_.join();
    watches_.stop();
    co_await watches_.join();
}

}  // namespace dtrun::agent
