#include "collectives/backends/tcp/peer_listener.h"

#include "base/interfaces.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace dtrun::collectives::over_tcp {
namespace {

/// Strangers may not use up this process's descriptors: no more than this beside the peers, of whom each asks for a
/// connection of either kind once.
constexpr std::size_t kStrangersMax = 256;
/// How many are let in before those who have come are heard: a peer proves himself within a moment, and has to be
/// asked before others take his place.
constexpr std::size_t kAtOnce = 64;
/// How often that is done before connections of this rank's own have their turn again.
constexpr int kTurns = 64;

}  // namespace

Result<std::unique_ptr<PeerListener>> PeerListener::open(const std::string& ip,
                                                         std::uint32_t size) {
    auto listener = Socket::listen(ip);
    if (!listener) return std::unexpected(listener.error());
    return std::unique_ptr<PeerListener>(new PeerListener(std::move(*listener), size));
}

PeerListener::PeerListener(Socket listener, std::uint32_t size)
    : listener_(std::move(listener)), strangers_max_(2 * std::size_t{size} + kStrangersMax) {}

void PeerListener::advance(std::uint32_t rank, const Terms& terms) {
    bool more = true;
    for (int turn = 0; more && turn < kTurns; ++turn) {
        more = let_some_in();
        hear(rank, terms);
        while (strangers_.size() > strangers_max_) turn_one_away();
        if (!full_) continue;
        more = turn_one_away();
        full_ = !more;
    }
}

/// \return whether there may be more
bool PeerListener::let_some_in() {
    full_ = false;
    for (std::size_t i = 0; i < kAtOnce; ++i) {
        Socket socket = listener_.accept();
        if (!socket) {
            pollfd waiting{listener_.fd(), POLLIN, 0};
            // The system does not look whether there is anybody when it has no descriptor for him.
            full_ = (errno == EMFILE || errno == ENFILE) && ::poll(&waiting, 1, 0) > 0;
            return false;
        }
        const sockaddr_storage peer = socket.peer_address();
        std::string from = origin_of(reinterpret_cast<const sockaddr*>(&peer));
        ++strangers_from_[from];
        strangers_.push_back({std::move(socket), std::move(from)});
    }
    return true;
}

/// Makes room. Who has to go is the oldest of those from where most have come, so that a crowd displaces itself.
bool PeerListener::turn_one_away() {
    if (strangers_.empty()) return false;
    const auto crowd =
        std::ranges::max_element(strangers_from_, {}, [](const auto& one) { return one.second; });
    forget(std::ranges::find(strangers_, crowd->first, &Stranger::from));
    return true;
}

PeerListener::Strangers::iterator PeerListener::forget(Strangers::iterator stranger) {
    const auto those = strangers_from_.find(stranger->from);
    if (--those->second == 0) strangers_from_.erase(those);
    return strangers_.erase(stranger);
}

void PeerListener::hear(std::uint32_t rank, const Terms& terms) {
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
        if (!stranger->side) stranger->side.emplace(terms);
        const auto proved = stranger->side->advance(stranger->socket);
        const bool done = proved && *proved;
        if (done) {
            const ConnectRequest request = stranger->side->request();
            // The lower rank asks.
            if (request.to == rank && request.from < rank)
                admitted_.insert_or_assign(
                    {request.kind, request.from},
                    Admitted{std::move(stranger->socket), stranger->side->take_sealing()});
        }
        stranger = proved && !done ? std::next(stranger) : forget(stranger);
    }
}

std::optional<Admitted> PeerListener::take(ConnectionKind kind, std::uint32_t peer) {
    const auto found = admitted_.extract({kind, peer});
    if (found.empty()) return std::nullopt;
    return std::move(found.mapped());
}

void PeerListener::add_to(std::vector<pollfd>& waits) const {
    if (full_) return;  // it would be ready all the time, and nobody is there
    if (std::ranges::find(waits, listener_.fd(), &pollfd::fd) != waits.end()) return;
    waits.push_back({listener_.fd(), POLLIN, 0});
    for (const Stranger& stranger : strangers_) {
        const short event = stranger.side && stranger.side->has_to_send() ? POLLOUT : POLLIN;
        waits.push_back({stranger.socket.fd(), event, 0});
    }
}

}  // namespace dtrun::collectives::over_tcp
