#include "collectives/backends/tcp/mesh.h"

#include "base/ids.h"
#include "collectives/backends/tcp/address.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

namespace dtrun::collectives::over_tcp {
namespace {

constexpr std::size_t kAheadBytes = 16UL << 10;
/// A system call that finds nothing takes a fraction of a microsecond; to be woken up takes ten.
constexpr int kTries = 30;
/// How often somebody who could interrupt a wait is asked.
constexpr int kAskMs = 100;
/// How often one looks whether the group is still wanted.
constexpr std::chrono::milliseconds kLook{1'000};
/// How soon a listener is tried again for which there was no descriptor.
constexpr std::chrono::milliseconds kFull{100};
/// The longest pause before one connects again.
constexpr std::chrono::milliseconds kPauseMax{500};

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

Mesh::Mesh(AddressBook& address_book, PeerListener& listener, AbortSignal& abort_signal,
           ConnectionKind kind, bool crowded, std::function<bool()> interrupted)
    : address_book_(address_book),
      peers_(listener),
      abort_signal_(abort_signal),
      kind_(kind),
      tries_(crowded ? 1 : kTries),
      interrupted_(std::move(interrupted)),
      links_(address_book.size()) {}

std::size_t Mesh::connections() const {
    return static_cast<std::size_t>(std::ranges::count(links_, Link::State::open, &Link::state));
}

void Mesh::broke(std::uint32_t peer) {
    if (!broken_) broken_ = peer;
}

Error Mesh::lost(std::uint32_t peer, const Error& why) {
    if (abort_signal_.ended()) return {Errc::cancelled, "aborted"};
    broke(peer);
    return why;
}

// ---- connecting -----------------------------------------------------------------------------

Result<void> Mesh::connect(std::span<const std::uint32_t> peers) {
    std::vector<std::uint32_t> missing;
    for (const std::uint32_t peer : peers)
        if (!connected(peer)) missing.push_back(peer);
    if (missing.empty()) return {};
    if (auto fetched = address_book_.fetch(missing, abort_signal_.ended()); !fetched)
        return fetched;
    for (const std::uint32_t peer : missing) {
        if (auto begun = begin(peer); !begun) return begun;
        if (auto greeted = advance(peer); !greeted) return greeted;
    }
    const auto deadline = std::chrono::steady_clock::now() + address_book_.timeout();
    auto next_look = std::chrono::steady_clock::now() + kLook;
    for (std::vector<pollfd> waits;; waits.clear()) {
        let_in();
        for (const std::uint32_t peer : missing)
            if (auto done = advance(peer); !done) return done;
        std::erase_if(missing, [this](std::uint32_t peer) { return connected(peer); });
        if (missing.empty()) return {};
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0)
            return fail(Errc::timed_out, "rank {} has not connected",
                        address_book_.name_of(missing.front()));
        for (const std::uint32_t peer : missing) add_to(waits, peer);
        const int ms = static_cast<int>(std::min<std::int64_t>(left.count(), kLook.count()));
        if (auto waited = wait(waits, ms); !waited) return waited;
        // Also while strangers come all the time.
        if (std::chrono::steady_clock::now() < next_look) continue;
        if (auto there = address_book_.still_wanted(); !there) return there;
        next_look = std::chrono::steady_clock::now() + kLook;
    }
}

Result<void> Mesh::begin(std::uint32_t peer) {
    if (links_[peer].state != Link::State::none) return {};
    if (!address_book_.knows(peer))
        if (auto fetched = address_book_.fetch({&peer, 1}, abort_signal_.ended()); !fetched)
            return fetched;
    if (peer < address_book_.rank()) return keep(peer, {}, Link::State::accepts);
    return dial(peer);
}

Result<void> Mesh::dial(std::uint32_t peer) {
    auto socket = Socket::connect(address_book_.address(peer));
    if (!socket) return std::unexpected(lost(peer, socket.error()));
    return keep(peer, std::move(*socket), Link::State::connects);
}

Result<void> Mesh::keep(std::uint32_t peer, Socket socket, Link::State state) {
    const std::lock_guard lock(mutex_);
    if (shut_) return fail(Errc::cancelled, "aborted");
    Link& link = links_[peer];
    if (link.state == Link::State::pauses) --pauses_;
    if (state == Link::State::pauses) ++pauses_;
    link.socket = std::move(socket);
    link.state = state;
    return {};
}

Result<void> Mesh::advance(std::uint32_t peer) {
    switch (links_[peer].state) {
        case Link::State::pauses:
            if (std::chrono::steady_clock::now() < links_[peer].again) return {};
            return dial(peer);
        case Link::State::connects:
            return greet(peer);
        case Link::State::greets:
            return introduce(peer);
        case Link::State::accepts:
            return accept(peer);
        case Link::State::none:
        case Link::State::open:
            break;
    }
    return {};
}

Result<void> Mesh::greet(std::uint32_t peer) {
    Link& link = links_[peer];
    pollfd writable{link.socket.fd(), POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) return {};
    if (auto made = link.socket.connected(); !made)
        return std::unexpected(lost(
            peer, {Errc::closed,
                   fmt::format("rank {} cannot be reached at {}: {}", address_book_.name_of(peer),
                               text_of(address_book_.address(peer)), made.error().message)}));
    link.asking.emplace(ConnectRequest{kind_, address_book_.rank(), peer}, address_book_.terms());
    link.state = Link::State::greets;
    return introduce(peer);
}

Result<void> Mesh::introduce(std::uint32_t peer) {
    Link& link = links_[peer];
    const auto proved = link.asking->advance(link.socket);
    if (!proved && proved.error().code == Errc::closed) return try_again(peer);
    if (!proved)
        return fail(Errc::closed, "somebody else answers at the address of rank {}: {}",
                    address_book_.name_of(peer), proved.error().message);
    if (!*proved) return {};
    auto sealing = link.asking->take_sealing();
    link.asking.reset();
    return opened(peer, std::move(sealing));
}

/// The peer has closed the connection before it had heard who asks: it had too many strangers at its listener, or has
/// ended, and then there is nobody at the next try.
Result<void> Mesh::try_again(std::uint32_t peer) {
    // Somebody else may have its port by now.
    if (auto there = address_book_.still_wanted(); !there) return there;
    std::array<std::uint8_t, 1> random{};
    random_bytes(random);
    // All who were closed at once do not come back at once.
    links_[peer].again = std::chrono::steady_clock::now() + kPauseMax * (1 + random[0]) / 256;
    return keep(peer, {}, Link::State::pauses);
}

Result<void> Mesh::accept(std::uint32_t peer) {
    auto admitted = peers_.take(kind_, peer);
    if (!admitted) return {};
    if (auto kept = keep(peer, std::move(admitted->socket), Link::State::accepts); !kept)
        return kept;
    return opened(peer, std::move(admitted->sealing));
}

Result<void> Mesh::opened(std::uint32_t peer, std::optional<Sealing> sealing) {
    Link& link = links_[peer];
    link.state = Link::State::open;
    if (sealing) link.sealed = std::make_unique<SealedStream>(std::move(*sealing));
    link.socket.prepare(kind_ == ConnectionKind::messages ? Traffic::bursts : Traffic::streams);
    abort_signal_.watch(link.socket.fd(), peer);
    return {};
}

void Mesh::add_to(std::vector<pollfd>& waits, std::uint32_t peer) const {
    const Link& link = links_[peer];
    if (link.state == Link::State::accepts) return peers_.add_to(waits);
    if (link.state == Link::State::pauses) return;  // wait() knows
    const bool sends = link.state == Link::State::connects ||
                       (link.asking.has_value() && link.asking->has_to_send());
    const short event = sends ? POLLOUT : POLLIN;
    waits.push_back({link.socket.fd(), event, 0});
}

// ---- waiting --------------------------------------------------------------------------------

Result<void> Mesh::wait(std::vector<pollfd>& waits, int ms) {
    waits.push_back({abort_signal_.fd(), POLLIN, 0});
    const bool asks = interrupted_ && ms < 0;
    const auto pause = until_next_try();
    if (pause && (ms < 0 || *pause < ms)) ms = *pause;
    int ready = 0;
    do {
        const int slice = asks && (ms < 0 || ms > kAskMs) ? kAskMs : ms;
        ready = ::poll(waits.data(), waits.size(), slice);
        if (asks && ready <= 0 && interrupted_()) return fail(Errc::cancelled, "interrupted");
    } while (asks && !pause && ready == 0);
    if (abort_signal_.ended()) return fail(Errc::cancelled, "aborted");
    if (ready <= 0) return {};
    const bool rings = waits.back().revents != 0;
    // What has come is read first: a peer may have ended after it had said everything.
    if (!rings || ready > 1) return {};
    const auto peer = abort_signal_.caused_by();
    if (!peer) return {};
    return std::unexpected(lost(*peer, {Errc::closed, "it has given up"}));
}

/// Milliseconds until a link is to be tried again, or the listener, if any is.
std::optional<int> Mesh::until_next_try() const {
    if (pauses_ == 0 && !peers_.is_full()) return std::nullopt;
    auto next = std::chrono::steady_clock::time_point::max();
    if (peers_.is_full()) next = std::chrono::steady_clock::now() + kFull;
    for (const Link& link : links_)
        if (link.state == Link::State::pauses) next = std::min(next, link.again);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
    return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

Result<void> Mesh::wait_to(std::uint32_t peer, short event) {
    std::vector<pollfd> waits{{links_[peer].socket.fd(), event, 0}};
    return wait(waits);
}

Result<Ready> Mesh::wait_for(std::uint32_t send_to, std::uint32_t receive_from) {
    if (has_ahead(receive_from)) return Ready{.send = false, .receive = true};
    std::vector<pollfd> waits{{links_[send_to].socket.fd(), POLLOUT, 0},
                              {links_[receive_from].socket.fd(), POLLIN, 0}};
    if (auto waited = wait(waits); !waited) return std::unexpected(waited.error());
    return Ready{.send = waits[0].revents != 0, .receive = waits[1].revents != 0};
}

Error Mesh::wait_for_end(std::uint32_t peer) {
    for (;;) {
        std::vector<pollfd> waits{{links_[peer].socket.fd(), POLLRDHUP, 0}};
        if (auto waited = wait(waits); !waited) return waited.error();
        if (waits.front().revents != 0) return lost(peer, {Errc::closed, "it was in another call"});
    }
}

// ---- reading and writing --------------------------------------------------------------------

Result<std::size_t> Mesh::send(std::uint32_t peer, std::span<const iovec> parts) {
    Link& link = links_[peer];
    return link.sealed ? link.sealed->send(link.socket, parts) : link.socket.send(parts);
}

Result<std::size_t> Mesh::receive(std::uint32_t peer, void* data, std::size_t bytes) {
    Link& link = links_[peer];
    return link.sealed ? link.sealed->receive(link.socket, data, bytes)
                       : link.socket.receive(data, bytes);
}

Result<std::size_t> Mesh::read_some(std::uint32_t peer, void* data, std::size_t bytes) {
    Link& link = links_[peer];
    if (link.sealed || (bytes >= kAheadBytes && !has_ahead(peer))) {
        auto come = receive(peer, data, bytes);
        if (!come) return std::unexpected(lost(peer, come.error()));
        return come;
    }
    if (!has_ahead(peer)) {
        if (!link.ahead) link.ahead = std::make_unique<std::byte[]>(kAheadBytes);
        const auto come = link.socket.receive(link.ahead.get(), kAheadBytes);
        if (!come) return std::unexpected(lost(peer, come.error()));
        link.ahead_begin = 0;
        link.ahead_end = *come;
    }
    const std::size_t taken = std::min(bytes, link.ahead_end - link.ahead_begin);
    if (taken > 0) std::memcpy(data, link.ahead.get() + link.ahead_begin, taken);
    link.ahead_begin += taken;
    return taken;
}

Result<std::size_t> Mesh::read(std::uint32_t peer, void* data, std::size_t bytes) {
    auto* const to = static_cast<std::byte*>(data);
    std::size_t all = 0;
    for (int tries = 0; all < bytes;) {
        const auto come = read_some(peer, to + all, bytes - all);
        if (!come) return come;
        all += *come;
        tries = *come > 0 ? 0 : tries + 1;
        if (tries < tries_) continue;
        if (auto waited = wait_to(peer, POLLIN); !waited) return std::unexpected(waited.error());
        tries = 0;
    }
    return all;
}

Result<void> Mesh::write(std::uint32_t peer, std::span<const iovec> parts) {
    std::array<iovec, 2> left{};
    std::ranges::copy(parts, left.begin());
    std::size_t first = 0;
    while (first < parts.size()) {
        const auto sent = send(peer, std::span(left).subspan(first, parts.size() - first));
        if (!sent) return std::unexpected(lost(peer, sent.error()));
        std::size_t gone = *sent;
        while (first < parts.size() && gone >= left[first].iov_len) gone -= left[first++].iov_len;
        if (first == parts.size()) return {};
        left[first].iov_base = static_cast<std::byte*>(left[first].iov_base) + gone;
        left[first].iov_len -= gone;
        if (*sent > 0) continue;
        if (auto waited = wait_to(peer, POLLOUT); !waited) return waited;
    }
    return {};
}

void Mesh::shut() noexcept {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    for (const Link& link : links_) link.socket.shut();
}

}  // namespace dtrun::collectives::over_tcp
