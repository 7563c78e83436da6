#include "tests/worker_client/fake_server.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "rendezvous/exchange/hub.h"
#include "rendezvous/wire/change.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/sent_frames.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace dtrun::testing {
namespace {

std::span<const std::uint8_t> as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

void send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n <= 0) return;
        bytes.remove_prefix(static_cast<std::size_t>(n));
    }
}

}  // namespace

class FakeServer::State final : public Outbox {
public:
    State(std::uint32_t ranks, bool is_daemon) : ranks_(ranks), is_daemon_(is_daemon) {
        HubOptions options;
        options.reconnects = is_daemon;
        hub_ = std::make_unique<Hub>(*this, options);
        if (!is_daemon) hub_->begin(1, ranks);
        wake_ = Fd(::eventfd(0, EFD_CLOEXEC));
    }
    ~State() override {
        stopping_ = true;
        wake();
        thread_.join();
    }

    void listen_unix() {
        static std::atomic<int> count{0};
        const std::string name =
            "dtrun-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        const auto size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
        listen(AF_UNIX, reinterpret_cast<sockaddr*>(&address), size);
        address_ = "@" + name;
    }
    void listen_tcp(std::uint16_t port, std::string_view secret, std::string_view job_name) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listen(AF_INET, reinterpret_cast<sockaddr*>(&address), sizeof address);
        socklen_t size = sizeof address;
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
        address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
        const Sha256 id = sha256("dtrun job " + std::string(job_name));
        job_ = std::string(reinterpret_cast<const char*>(id.data()), 16);
        job_secret_ = hmac_sha256(sha256(secret), {as_bytes("dtrun job secret"), as_bytes(job_)});
    }
    void run() { thread_ = std::thread(&State::loop, this); }

    void wake() { ::eventfd_write(wake_.get(), 1); }

    // Outbox
    void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
        const auto found = connections_.find(peer);
        if (found != connections_.end())
            send_all(found->second.fd.get(), encode_frame(type, payload));
    }
    void to_root(FrameType, std::string_view) override {}

    template <class Message>
    void send_to_all(const Message& message) {
        const std::lock_guard lock(mutex_);
        for (auto& [peer, connection] : connections_)
            send_all(connection.fd.get(), encode(message));
    }

    /// In a board that ranks share, as an agent has it.
    void make_page() {
        board_file_ = Fd(::memfd_create("board", MFD_CLOEXEC));
        if (::ftruncate(board_file_.get(), ChangeBoard::kBytes) != 0)
            throw std::runtime_error("board");
        void* memory = ::mmap(nullptr, ChangeBoard::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                              board_file_.get(), 0);
        board_ = new (memory) ChangeBoard;
        board_->write({1, 1, ChangeReason::none, 0, 0});
    }

    void write_page(const Change& change) {
        const std::lock_guard lock(mutex_);
        board_->write(change);
        for (const Fd& bell : bells_) ::eventfd_write(bell.get(), 1);
    }

    void begin_elastic(std::uint64_t generation) {
        const std::lock_guard lock(mutex_);
        const auto ranks = static_cast<std::uint32_t>(asked_.size());
        hub_->begin(generation, ranks);
        board_->write({generation, generation, ChangeReason::none, 0, 0});
        Welcome welcome;
        welcome.generation = generation;
        welcome.world_size = welcome.local_size = ranks;
        for (std::uint32_t i = 0; i < ranks; ++i) {
            welcome.rank = Rank{ranks - 1 - i};
            hub_->remove_peer(asked_[i], Clock::now());
            hub_->add_peer(asked_[i], PeerKind::rank, welcome.rank);
            send_all(connections_[asked_[i]].fd.get(), encode(welcome));
        }
        asked_.clear();
    }

    mutable std::mutex mutex_;
    mutable std::condition_variable logged_;
    std::vector<std::string> log_;
    std::string address_;
    std::unique_ptr<Hub> hub_;
    bool frozen_ = false;
    Heartbeat heartbeat_;

    template <class Message>
    void order_all(const Message& message) {
        const std::lock_guard lock(mutex_);
        for (auto& [member, session] : sessions_) order(session, message);
    }
    void expect(std::uint64_t generation) {
        const std::lock_guard lock(mutex_);
        coming_ = generation;
    }

    void drop() {
        const std::lock_guard lock(mutex_);
        for (auto& [peer, connection] : connections_) {
            hub_->remove_peer(peer, Clock::now());
            // A reset, as from a host that has restarted.
            const linger hard{1, 0};
            ::setsockopt(connection.fd.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        }
        connections_.clear();
    }

private:
    struct Connection {
        Fd fd;
        std::string buffer;
    };
    /// With a member, over whatever connections it has.
    struct Session {
        PeerId peer = 0;
        SentFrames sent;
        HeardFrames heard;
    };

    void listen(int family, const sockaddr* address, std::size_t size) {
        listener_ = Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const int on = 1;
        ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(listener_.get(), address, static_cast<socklen_t>(size)) != 0 ||
            ::listen(listener_.get(), 64) != 0)
            throw std::runtime_error(strerror(errno));
    }

    void loop() {
        while (!stopping_) {
            std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
            std::vector<PeerId> peers;
            int timeout_ms = -1;
            {
                const std::lock_guard lock(mutex_);
                if (frozen_) fds.resize(1);
                for (auto& [peer, connection] : connections_) {
                    if (frozen_) break;
                    fds.push_back({connection.fd.get(), POLLIN, 0});
                    peers.push_back(peer);
                }
                if (hub_->next_deadline() != Deadline::max()) {
                    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
                        hub_->next_deadline() - Clock::now());
                    timeout_ms = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
                }
            }
            ::poll(fds.data(), fds.size(), timeout_ms);
            const std::lock_guard lock(mutex_);
            eventfd_t value = 0;
            if (fds[0].revents != 0) ::eventfd_read(wake_.get(), &value);
            if (frozen_) continue;
            hub_->expire(Clock::now());
            if (fds.size() > 1 && fds[1].revents != 0) accept();
            for (std::size_t i = 0; i < peers.size(); ++i)
                if (fds[i + 2].revents != 0) read(peers[i]);
        }
    }

    void accept() {
        Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!fd) return;
        if (is_daemon_ && !authenticate(fd.get())) return note("stranger");
        connections_[++last_peer_] = {std::move(fd), {}};
    }

    bool authenticate(int fd) {
        std::string hello(56, '\0');
        if (::recv(fd, hello.data(), hello.size(), MSG_WAITALL) != 56) return false;
        std::string ours = hello.substr(0, 8) + std::string(32, 'n');
        const auto proof = [&](std::string_view role) {
            const Sha256 mac =
                hmac_sha256(job_secret_, {as_bytes(role), as_bytes(hello), as_bytes(ours)});
            return std::string(reinterpret_cast<const char*>(mac.data()), mac.size());
        };
        send_all(fd, ours);
        std::string theirs(32, '\0');
        if (::recv(fd, theirs.data(), theirs.size(), MSG_WAITALL) != 32) return false;
        const bool proved = theirs == proof("dtrun client") && hello.substr(8, 16) == job_;
        send_all(fd, proved ? proof("dtrun server") : std::string(32, '\0'));
        return proved;
    }

    void read(PeerId peer) {
        const auto found = connections_.find(peer);
        if (found == connections_.end()) return;
        char bytes[64 << 10];
        const ssize_t n = ::recv(found->second.fd.get(), bytes, sizeof bytes, 0);
        if (n <= 0) return end(peer);
        std::string& buffer = found->second.buffer;
        buffer.append(bytes, static_cast<std::size_t>(n));
        std::string_view rest = buffer;
        for (;;) {
            const auto frame = next_frame(rest);
            if (frame && !*frame) break;
            if (!frame || !on_frame(peer, **frame)) return end(peer);
        }
        buffer.erase(0, buffer.size() - rest.size());
    }
    void end(PeerId peer) {
        hub_->remove_peer(peer, Clock::now());
        connections_.erase(peer);
        note("end");
    }

    bool on_frame(PeerId peer, const FrameView& frame) {
        switch (frame.type) {
            case FrameType::hello:
                return on_hello(peer, *decode<Hello>(frame.payload));
            case FrameType::rejoin:
                asked_.push_back(peer);
                note("rejoin " + std::to_string(decode<Rejoin>(frame.payload)->generation));
                return true;
            case FrameType::section: {
                const auto section = decode<Section>(frame.payload);
                note(fmt::format("section {} {} {}", std::to_underlying(section->kind),
                                 section->name, section->limit_ms));
                return true;
            }
            case FrameType::stall: {
                const auto stall = decode<Stall>(frame.payload);
                note(fmt::format("stall {} {} {}", stall->what, stall->waited_ms, stall->over));
                return true;
            }
            case FrameType::enter:
                return on_enter(peer, *decode<Enter>(frame.payload));
            case FrameType::heard:
                return session_of(peer)
                    .sent.heard(decode<Heard>(frame.payload)->number)
                    .has_value();
            case FrameType::numbered: {
                const auto done = session_of(peer).heard.take(
                    frame.payload,
                    [&](const FrameView& inner) { return from_member(peer, inner); });
                send_all(connections_[peer].fd.get(), encode(Heard{session_of(peer).heard.last()}));
                return done.has_value();
            }
            case FrameType::progress: {
                const auto progress = decode<RankProgress>(frame.payload);
                note("progress " + fmt::format("{}", progress->rank) + " " +
                     std::to_string(progress->step));
                break;
            }
            case FrameType::heartbeat: {
                const auto beat = decode<Heartbeat>(frame.payload);
                note("heartbeat " + std::to_string(beat->fastest_step));
                send_all(connections_[peer].fd.get(), encode(heartbeat_));
                return true;
            }
            case FrameType::unfence:
                note("unfence " + decode<Unfence>(frame.payload)->name);
                break;
            default:
                break;
        }
        return hub_->from_peer(peer, frame, Clock::now()).has_value();
    }

    Result<void> from_member(PeerId peer, const FrameView& frame) {
        if (frame.type == FrameType::leave) {
            const auto leave = decode<Leave>(frame.payload);
            note(leave->finished ? "leave finished" : "leave " + leave->why);
        } else if (frame.type == FrameType::rejoin_status) {
            if (decode<RejoinStatus>(frame.payload)->state != RejoinState::wants_rank) return {};
            waiting_.insert(peer);
            if (waiting_.size() == members_.size()) begin(coming_);
        } else if (frame.type == FrameType::paused) {
            note("paused " + std::to_string(decode<Paused>(frame.payload)->generation));
        }
        return {};
    }

    bool on_hello(PeerId peer, const Hello& hello) {
        note("hello " + (hello.rank == kNoRank ? "helper" : fmt::format("{}", hello.rank)) +
             (hello.elastic ? " elastic" : ""));
        if (board_ != nullptr && hello.board) send_board(connections_[peer].fd.get());
        hub_->add_peer(peer, PeerKind::rank, hello.rank);
        Welcome welcome;
        welcome.job = "0123456789abcdef0123456789abcdef";
        welcome.generation = hub_->generation();
        welcome.rank = hello.rank;
        welcome.local_rank = std::to_underlying(hello.rank);
        welcome.world_size = welcome.local_size = ranks_;
        welcome.cross_size = welcome.node_count = 1;
        welcome.host_name = "fake";
        welcome.stalls = true;
        send_all(connections_[peer].fd.get(), encode(welcome));
        return true;
    }

    void send_board(int socket) {
        Fd bell(::eventfd(0, EFD_CLOEXEC));
        Bytes frame = encode(BoardOpened{ChangeBoard::kBytes});
        iovec bytes{frame.data(), frame.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))]{};
        msghdr message{};
        message.msg_iov = &bytes;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(2 * sizeof(int));
        const int descriptors[] = {board_file_.get(), bell.get()};
        std::memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
        ::sendmsg(socket, &message, MSG_NOSIGNAL);
        bells_.push_back(std::move(bell));
    }

    bool on_enter(PeerId peer, const Enter& enter) {
        note("enter " + std::to_string(enter.slots));
        const auto known = std::ranges::find(members_, enter.member);
        const bool is_new = enter.slots > 0 && known == members_.end();
        const auto rank = static_cast<std::uint32_t>(known - members_.begin());
        hub_->add_peer(peer, PeerKind::rank, enter.slots > 0 ? Rank{rank} : kNoRank);
        if (enter.slots == 0) return true;
        Session& session = sessions_[enter.member];
        session.peer = peer;
        const int fd = connections_[peer].fd.get();
        send_all(fd, encode(Heard{session.heard.last()}));
        if (is_new) {
            members_.push_back(enter.member);
            if (members_.size() == ranks_) begin(hub_->generation() + 1);
        } else {
            if (!session.sent.heard(enter.heard)) return false;
            for (const Bytes& frame : session.sent.unheard()) send_all(fd, frame);
        }
        return true;
    }

    Session& session_of(PeerId peer) {
        return std::ranges::find_if(sessions_,
                                    [peer](const auto& each) { return each.second.peer == peer; })
            ->second;
    }
    template <class Message>
    void order(Session& session, const Message& message) {
        const Bytes frame = session.sent.add(encode(message));
        const auto connection = connections_.find(session.peer);
        if (connection != connections_.end()) send_all(connection->second.fd.get(), frame);
    }

    void begin(std::uint64_t generation) {
        hub_->begin(generation, static_cast<std::uint32_t>(members_.size()));
        waiting_.clear();
        for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
            Assign assign;
            assign.generation = generation;
            assign.world_size = assign.node_count = static_cast<std::uint32_t>(members_.size());
            assign.node_rank = rank;
            assign.ranks = {{Rank{rank}, 0, rank, assign.world_size, 0}};
            assign.ranks_below = 1;
            order(sessions_[members_[rank]], assign);
        }
    }

    void note(std::string line) {
        log_.push_back(std::move(line));
        logged_.notify_all();
    }

    const std::uint32_t ranks_;
    const bool is_daemon_;
    Fd listener_;
    Fd wake_;
    std::string job_;
    Sha256 job_secret_{};
    std::map<PeerId, Connection> connections_;
    PeerId last_peer_ = 0;
    std::vector<MemberId> members_;  ///< by rank
    std::map<MemberId, Session> sessions_;
    std::set<PeerId> waiting_;  ///< for their places
    std::uint64_t coming_ = 0;  ///< the generation that begins when all wait
    Fd board_file_;
    ChangeBoard* board_ = nullptr;  ///< stays mapped: a test has few of them
    std::vector<Fd> bells_;
    std::vector<PeerId> asked_;  ///< for a place in the next generation
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

FakeServer FakeServer::agent(std::uint32_t ranks) {
    auto state = std::make_unique<State>(ranks, false);
    state->listen_unix();
    state->run();
    return FakeServer(std::move(state));
}

FakeServer FakeServer::elastic_agent(std::uint32_t ranks) {
    auto state = std::make_unique<State>(ranks, false);
    state->make_page();
    state->listen_unix();
    state->run();
    return FakeServer(std::move(state));
}

FakeServer FakeServer::daemon(std::uint32_t ranks, const std::string& secret,
                              const std::string& job_name, std::uint16_t port) {
    auto state = std::make_unique<State>(ranks, true);
    state->listen_tcp(port, secret, job_name);
    state->run();
    return FakeServer(std::move(state));
}

FakeServer::FakeServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
FakeServer::FakeServer(FakeServer&&) noexcept = default;
FakeServer::~FakeServer() = default;

const std::string& FakeServer::address() const {
    return state_->address_;
}

void FakeServer::announce(std::uint8_t kind, std::uint64_t generation, std::uint32_t grace_ms,
                          const std::string& why) {
    state_->send_to_all(
        RankEvent{static_cast<RankEvent::Kind>(kind), generation, grace_ms, why, {}});
}

void FakeServer::change(std::uint64_t next, std::uint8_t reason, std::uint64_t stop_step) {
    const auto why = static_cast<ChangeReason>(reason);
    state_->write_page({next - 1, next, why, 0, stop_step});
    state_->send_to_all(RankEvent{RankEvent::Kind::membership, next, 0, "hosts change", why});
}

void FakeServer::begin(std::uint64_t generation) {
    state_->begin_elastic(generation);
}

void FakeServer::notify(std::uint64_t generation) {
    state_->expect(generation);
    state_->order_all(Notify{generation, ChangeReason::joined, 0, 0, 0});
}

void FakeServer::stop_job(std::uint32_t grace_ms, const std::string& why) {
    state_->send_to_all(Stop{15, grace_ms, why});
}

void FakeServer::say_timeout(std::uint32_t timeout_ms) {
    {
        const std::lock_guard lock(state_->mutex_);
        state_->heartbeat_.timeout_ms = timeout_ms;
    }
    state_->send_to_all(state_->heartbeat_);
}

void FakeServer::fail_fences(const std::string& why) {
    const std::lock_guard lock(state_->mutex_);
    state_->hub_->fail_fences(why);
}

void FakeServer::drop_connections() {
    state_->drop();
    state_->wake();
}

void FakeServer::freeze() {
    const std::lock_guard lock(state_->mutex_);
    state_->frozen_ = true;
    state_->wake();
}

void FakeServer::thaw() {
    const std::lock_guard lock(state_->mutex_);
    state_->frozen_ = false;
    state_->wake();
}

std::vector<std::string> FakeServer::log() const {
    const std::lock_guard lock(state_->mutex_);
    return state_->log_;
}

bool FakeServer::saw(const std::string& line) const {
    std::unique_lock lock(state_->mutex_);
    return state_->logged_.wait_for(lock, std::chrono::seconds(5), [&] {
        return std::ranges::find(state_->log_, line) != state_->log_.end();
    });
}

}  // namespace dtrun::testing
