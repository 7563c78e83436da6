#include "collectives/tcp/door.h"

#include <cerrno>
#include <iterator>
#include <utility>

namespace dtrun::collectives::over_tcp {
namespace {

/// Strangers may not use up this process's descriptors: no more than this beside the peers, of whom each asks for a
/// connection of either kind once.
constexpr std::size_t kStrangersMax = 256;

}  // namespace

Result<std::unique_ptr<Door>> Door::open(const std::string& ip, std::uint32_t size) {
    auto listener = Socket::listen(ip);
    if (!listener) return std::unexpected(listener.error());
    return std::unique_ptr<Door>(
        new Door(std::move(*listener), 2 * std::size_t{size} + kStrangersMax));
}

void Door::advance() {
    full_ = false;
    while (let_one_in()) {
    }
    hear();
}

/// \return whether there may be another one
bool Door::let_one_in() {
    Socket socket = listener_.accept();
    if (socket) {
        silent_.push_back({std::move(socket), {}, 0});
        if (silent_.size() <= callers_max_) return true;
        hear();
        if (silent_.size() > callers_max_) turn_one_away();
        return true;
    }
    if (errno != EMFILE && errno != ENFILE) return false;
    pollfd waiting{listener_.fd(), POLLIN, 0};
    if (::poll(&waiting, 1, 0) <= 0)
        return false;  // there is nobody, which the system did not look at
    hear();
    full_ = !turn_one_away();
    return !full_;
}

/// Makes room, for which whoever has said nothing for longest has to go.
bool Door::turn_one_away() {
    if (silent_.empty()) return false;
    silent_.pop_front();
    return true;
}

void Door::hear() {
    for (auto caller = silent_.begin(); caller != silent_.end();) {
        const auto next = std::next(caller);
        const auto come =
            caller->socket.receive(reinterpret_cast<std::byte*>(&caller->greeting) + caller->heard,
                                   sizeof(Greeting) - caller->heard);
        if (come) caller->heard += *come;
        const bool done = caller->heard == sizeof(Greeting);
        if (!come || (done && caller->greeting.magic != Greeting::kMagic))
            silent_.erase(caller);
        else if (done)
            callers_.splice(callers_.end(), silent_, caller);
        if (callers_.size() > callers_max_) callers_.pop_front();
        caller = next;
    }
}

Socket Door::take(const Directory& directory, Kind kind, std::uint32_t peer) {
    for (auto caller = callers_.begin(); caller != callers_.end();) {
        const Greeting& greeting = caller->greeting;
        if (greeting.from != peer || greeting.kind != static_cast<std::uint32_t>(kind)) {
            ++caller;
            continue;
        }
        Socket socket = std::move(caller->socket);
        const Sha256 proof = greeting.proof;
        caller = callers_.erase(caller);
        if (equal_constant_time(proof, directory.proof("asks", kind, peer, directory.rank())))
            return socket;
    }
    return {};
}

void Door::add_to(std::vector<pollfd>& waits) const {
    if (!full_)
        waits.push_back({listener_.fd(), POLLIN, 0});  // else it would be ready all the time
    for (const Caller& caller : silent_) waits.push_back({caller.socket.fd(), POLLIN, 0});
}

}  // namespace dtrun::collectives::over_tcp
