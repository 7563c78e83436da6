#include "collectives/tcp/door.h"

#include <utility>

namespace dtrun::collectives::over_tcp {
namespace {

/// Strangers that say nothing may not use up this process's descriptors; the oldest go first.
constexpr std::size_t kCallersMax = 4'096;

}  // namespace

Result<std::unique_ptr<Door>> Door::open(const std::string& ip) {
    auto listener = Socket::listen(ip);
    if (!listener) return std::unexpected(listener.error());
    return std::unique_ptr<Door>(new Door(std::move(*listener)));
}

void Door::advance() {
    while (Socket socket = listener_.accept()) {
        if (callers_.size() == kCallersMax) callers_.pop_front();
        callers_.push_back({std::move(socket), {}, 0});
    }
    for (auto caller = callers_.begin(); caller != callers_.end();) {
        const std::size_t left = sizeof(Greeting) - caller->heard;
        const auto come =
            left == 0 ? Result<std::size_t>(0)
                      : caller->socket.receive(
                            reinterpret_cast<std::byte*>(&caller->greeting) + caller->heard, left);
        if (come) caller->heard += *come;
        const bool wrong = !come || (caller->heard == sizeof(Greeting) &&
                                     caller->greeting.magic != Greeting::kMagic);
        caller = wrong ? callers_.erase(caller) : std::next(caller);
    }
}

Socket Door::take(const Directory& directory, Kind kind, std::uint32_t peer) {
    for (auto caller = callers_.begin(); caller != callers_.end();) {
        const Greeting& greeting = caller->greeting;
        if (caller->heard < sizeof(Greeting) || greeting.from != peer ||
            greeting.kind != static_cast<std::uint32_t>(kind)) {
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
    waits.push_back({listener_.fd(), POLLIN, 0});
    for (const Caller& caller : callers_)
        if (caller.heard < sizeof(Greeting)) waits.push_back({caller.socket.fd(), POLLIN, 0});
}

}  // namespace dtrun::collectives::over_tcp
