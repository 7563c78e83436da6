#include "collectives/gloo/mesh.h"

#include "collectives/gloo/address.h"

#include <gloo/transport/address.h>
#include <gloo/transport/tcp/address.h>

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

namespace dtrun::collectives::over_gloo {
namespace {

using namespace std::chrono_literals;

/// How long shut() may go unnoticed while peers' addresses are awaited.
constexpr std::chrono::milliseconds kSlice = 1s;
constexpr char kRefusal = '!';

sockaddr_storage own_address(const ::gloo::transport::Pair& pair) {
    const std::vector<char> bytes = pair.address().bytes();
    sockaddr_storage address{};
    std::memcpy(&address, bytes.data(), std::min(bytes.size(), sizeof address));
    return address;
}

}  // namespace

std::vector<std::uint32_t> neighbours(std::uint32_t rank, std::uint32_t size) {
    std::set<std::uint32_t> found;
    if (size <= kMeshRanksMax) {
        for (std::uint32_t peer = 0; peer < size; ++peer) found.insert(peer);
    } else {
        for (std::uint32_t distance = 1; distance < size; distance *= 2) {
            found.insert((rank + distance) % size);
            found.insert((rank + size - distance) % size);
        }
    }
    found.erase(rank);
    return {found.begin(), found.end()};
}

Mesh::Mesh(Transport& transport, const GroupSpec& spec, Kind kind,
           std::function<void(std::uint32_t)> ended)
    : spec_(spec),
      kind_(kind),
      transport_(transport),
      ended_(std::move(ended)),
      context_(transport.make_context(spec.rank, spec.size, spec.timeout)),
      ends_(spec.size) {}

Mesh::~Mesh() {
    // A watch may use all ends until it is destroyed.
    for (End& end : ends_) end.watch.reset();
}

std::uint32_t Mesh::name_of(std::uint32_t peer) const {
    return peer < spec_.members.size() ? spec_.members[peer] : peer;
}

void Mesh::broke(std::uint32_t peer) {
    const std::lock_guard lock(mutex_);
    if (!broken_) broken_ = peer;
}

std::optional<std::uint32_t> Mesh::broken() const {
    const std::lock_guard lock(mutex_);
    return broken_;
}

bool Mesh::grew(std::uint32_t peer, std::size_t bytes) {
    if (bytes <= ends_[peer].largest) return false;
    ends_[peer].largest = bytes;
    return true;
}

std::string Mesh::key(const GroupSpec& spec, Kind kind, std::uint32_t from, std::uint32_t to) {
    return fmt::format("{}gloo/{}/{}-{}", spec.prefix, kind == Kind::streams ? "s" : "m", from, to);
}

void Mesh::refuse(const GroupSpec& spec, const std::string& why) {
    std::vector<KeyStore::Pair> pairs;
    for (const std::uint32_t peer : neighbours(spec.rank, spec.size))
        pairs.emplace_back(key(spec, Kind::streams, spec.rank, peer), kRefusal + why);
    // If the store fails, too, peers wait until their own timeout.
    if (!pairs.empty()) static_cast<void>(spec.store->set(pairs));
}

std::size_t Mesh::connections() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(
        std::ranges::count_if(ends_, [](const End& end) { return static_cast<bool>(end.socket); }));
}

void Mesh::wait_forever() {
    spec_.timeout = kForever;
    Transport::set_timeout(*context_, kForever);
}

Result<void> Mesh::publish(std::span<const std::uint32_t> peers) {
    std::vector<KeyStore::Pair> pairs;
    try {
        const std::lock_guard lock(mutex_);
        if (shut_) return fail(Errc::cancelled, "aborted");
        for (const std::uint32_t peer : peers) {
            if (ends_[peer].pair) continue;
            auto& pair = context_->createPair(static_cast<int>(peer));
            ends_[peer].pair = pair.get();
            pairs.emplace_back(key(spec_, kind_, spec_.rank, peer), text_of(own_address(*pair)));
        }
    } catch (const std::exception& error) {
        return fail(Errc::internal, "Gloo: {}", reason_of(error));
    }
    if (pairs.empty()) return {};
    return spec_.store->set(pairs);
}

Result<void> Mesh::connect(std::span<const std::uint32_t> peers) {
    std::vector<std::uint32_t> missing;
    for (const std::uint32_t peer : peers)
        if (!connected(peer)) missing.push_back(peer);
    if (missing.empty()) return {};

    if (auto published = publish(missing); !published) return published;
    if (auto fetched = fetch(missing); !fetched) return fetched;

    // Connecting needs only the peer's kernel, while accepting waits for the peer itself. As ranks
    // connect before they accept, no ring of them waits for each other.
    std::ranges::stable_partition(missing,
                                  [&](std::uint32_t peer) { return !ends_[peer].accepts; });
    for (const std::uint32_t peer : missing)
        if (auto made = connect_one(peer); !made) return made;
    if (auto taken = take_sockets(missing); !taken) return taken;
    for (const std::uint32_t peer : missing) {
        watch(peer);
        if (kind_ == Kind::messages) continue;
        if (auto made = make_stream(peer); !made) return made;
    }
    return {};
}

Result<void> Mesh::fetch(std::span<const std::uint32_t> peers) {
    std::vector<std::string> keys;
    for (const std::uint32_t peer : peers) keys.push_back(key(spec_, kind_, peer, spec_.rank));
    const auto values = await(keys, peers);
    if (!values) return std::unexpected(values.error());
    for (std::size_t i = 0; i < peers.size(); ++i) {
        const std::string& value = (*values)[i];
        if (value.starts_with(kRefusal))
            return fail(Errc::invalid_input, "rank {}: {}", name_of(peers[i]), value.substr(1));
        const auto address = parse_address(value);
        if (!address) return fail(address.error(), "rank {}", name_of(peers[i]));
        End& end = ends_[peers[i]];
        const sockaddr_storage self = own_address(*end.pair);
        if (self.ss_family != address->ss_family)
            return fail(Errc::invalid_input,
                        "this rank listens at {} and rank {} at {}: all must use IPv4, or all IPv6 "
                        "(name the interfaces)",
                        text_of(self), name_of(peers[i]), value);
        end.peer = *address;
        end.accepts = !connects(self, *address);
    }
    return {};
}

Result<std::vector<std::string>> Mesh::await(const std::vector<std::string>& keys,
                                             std::span<const std::uint32_t> peers) {
    const auto deadline = std::chrono::steady_clock::now() + spec_.timeout;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        auto values = spec_.store->get(keys, std::clamp(left, 0ms, kSlice));
        if (shut_) return fail(Errc::cancelled, "aborted");
        if (values || values.error().code != Errc::timed_out) return values;
        if (left <= 0ms) return std::unexpected(not_come(keys, peers));
    }
}

Error Mesh::not_come(const std::vector<std::string>& keys, std::span<const std::uint32_t> peers) {
    constexpr std::size_t kNamed = 8;
    std::string names;
    std::size_t count = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto value = spec_.store->find(keys[i]);
        if (!value || *value) continue;
        if (++count <= kNamed)
            names += fmt::format("{}{}", count == 1 ? "" : ", ", name_of(peers[i]));
    }
    return {Errc::timed_out,
            fmt::format("rank{} {}{} {} not come within {} s", count == 1 ? "" : "s", names,
                        count > kNamed ? fmt::format(" and {} more", count - kNamed) : "",
                        count == 1 ? "has" : "have",
                        std::chrono::duration<double>(spec_.timeout).count())};
}

Result<void> Mesh::connect_one(std::uint32_t peer) {
    const End& end = ends_[peer];
    try {
        std::optional<Transport::Hurry> hurry;
        if (!end.accepts) hurry.emplace(transport_);
        end.pair->connect(::gloo::transport::tcp::Address(end.peer, -1).bytes());
        return {};
    } catch (const std::exception& error) {
        if (shut_) return fail(Errc::cancelled, "aborted");
        broke(peer);
        const bool late = std::string_view(error.what()).find("timeout") != std::string_view::npos;
        return fail(late ? Errc::timed_out : Errc::closed, "rank {} has not connected: {}",
                    name_of(peer), reason_of(error));
    }
}

Result<void> Mesh::take_sockets(std::span<const std::uint32_t> peers) {
    std::vector<Socket::Ends> ends;
    for (const std::uint32_t peer : peers) {
        // An accepting end keeps the address that it published; a connecting end gets a new one.
        const End& end = ends_[peer];
        const auto remote = end.accepts ? std::nullopt : std::optional(end.peer);
        ends.push_back({own_address(*end.pair), remote});
    }
    auto sockets = Socket::find(ends);
    if (!sockets) return std::unexpected(sockets.error());
    const std::lock_guard lock(mutex_);
    if (shut_) return fail(Errc::cancelled, "aborted");
    for (std::size_t i = 0; i < peers.size(); ++i) {
        if (!(*sockets)[i])
            return fail(Errc::closed, "rank {}: the connection was lost as soon as it was made",
                        name_of(peers[i]));
        ends_[peers[i]].socket = std::move((*sockets)[i]);
    }
    return {};
}

Result<void> Mesh::make_stream(std::uint32_t peer) {
    try {
        const NoPipeSignal guard;
        const Transport::Hurry hurry(transport_);
        ends_[peer].pair->setSync(true, false);
        return {};
    } catch (const std::exception& error) {
        return fail(shut_ ? Errc::cancelled : Errc::closed, "rank {}: {}", name_of(peer),
                    reason_of(error));
    }
}

void Mesh::watch(std::uint32_t peer) {
    const int fd = ends_[peer].socket.fd();
    const auto failed = [this, peer](int events) {
        if (!(events & EPOLLPRI)) return false;
        // This rank may be waiting for a peer that has not noticed yet, so its own calls end, too.
        broke(peer);
        shut_connections();
        ended_(peer);
        return false;
    };
    const auto left = [this, peer, turns = 0](int) mutable {
        // Gloo still reads unread bytes, in this thread; should it not, kTurnsMax ends the wait.
        constexpr int kTurnsMax = 100'000;
        if (ends_[peer].socket.unread() > 0 && ++turns < kTurnsMax) return true;
        ended_(peer);
        return false;
    };
    ends_[peer].watch = kind_ == Kind::streams
                            ? std::make_unique<Transport::Watch>(transport_, fd, EPOLLPRI, failed)
                            : std::make_unique<Transport::Watch>(transport_, fd, EPOLLRDHUP, left);
}

void Mesh::shut_connections() noexcept {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    for (const End& end : ends_) end.socket.shut();
}

void Mesh::shut() noexcept {
    shut_connections();
    std::vector<::gloo::transport::Pair*> connecting;
    {
        const std::lock_guard lock(mutex_);
        for (const End& end : ends_)
            if (end.pair && !end.socket) connecting.push_back(end.pair);
    }
    for (auto* pair : connecting) close(*pair);
}

void Mesh::close() noexcept {
    const Transport::Hurry hurry(transport_);
    for (const End& end : ends_)
        if (end.pair) close(*end.pair);
}

void Mesh::close(::gloo::transport::Pair& pair) noexcept {
    try {
        pair.close();
    } catch (const std::exception&) {
        // It was being closed.
    }
}

}  // namespace dtrun::collectives::over_gloo
