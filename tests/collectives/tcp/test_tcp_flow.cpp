#include "collectives/backends/tcp/abort_signal.h"
#include "collectives/backends/tcp/address_book.h"
#include "collectives/backends/tcp/mesh.h"
#include "collectives/backends/tcp/peer_listener.h"
#include "collectives/backends/tcp/stream.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <sys/uio.h>

#include <array>
#include <chrono>
#include <memory>
#include <vector>

using namespace dtrun;
using namespace dtrun::collectives;
using namespace dtrun::collectives::over_tcp;

namespace {

constexpr std::uint32_t kTag = 7;
constexpr std::size_t kPartBytes = 100'000;

/// A rank's connections. Whoever waits for longer than ten seconds is interrupted.
class Connected {
public:
    explicit Connected(const GroupSpec& spec) : address_book_(spec) {}

    Result<void> connect(std::uint32_t peer) {
        auto listener = PeerListener::open("127.0.0.1", address_book_.size());
        if (!listener) return std::unexpected(listener.error());
        peers_ = std::move(*listener);
        if (auto told = address_book_.publish(peers_->address()); !told) return told;
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        mesh_ = std::make_unique<Mesh>(
            address_book_, *peers_, abort_signal_, ConnectionKind::streams, true,
            [deadline] { return std::chrono::steady_clock::now() > deadline; });
        return mesh_->connect({&peer, 1});
    }
    Mesh& mesh() { return *mesh_; }

private:
    AddressBook address_book_;
    AbortSignal abort_signal_;
    std::unique_ptr<PeerListener> peers_;
    std::unique_ptr<Mesh> mesh_;
};

/// Sends two parts and receives one.
Result<void> exchange_parts(Mesh& mesh, std::uint32_t peer) {
    const std::vector<char> out(2 * kPartBytes, 'o');
    std::vector<char> in(kPartBytes, '-');
    SendStream outgoing(mesh, peer, kTag, out.data());
    RecvStream incoming(mesh, peer, kTag, in.data(), in.size());
    auto done = flow(
        outgoing, incoming, {.sends = 2, .receives = 1},
        [&](std::size_t part) { return outgoing.send(part * kPartBytes, kPartBytes, 0); },
        [&](std::size_t, IfLate if_late) { return incoming.receive(if_late); });
    if (done && in != std::vector<char>(kPartBytes, 'i')) return fail(Errc::internal, "not so");
    return done;
}

/// Sends the second half of its part once both parts of the peer have come.
Result<void> hold_back(Mesh& mesh, std::uint32_t peer) {
    PartHeader header{.tag = kTag, .bytes = kPartBytes};
    std::vector<char> half(kPartBytes / 2, 'i'), come(sizeof header + kPartBytes);
    const std::array first{iovec{&header, sizeof header}, iovec{half.data(), half.size()}};
    if (auto sent = mesh.write(peer, first); !sent) return sent;
    for (int part = 0; part < 2; ++part)
        if (auto read = mesh.read(peer, come.data(), come.size()); !read)
            return std::unexpected(read.error());
    const iovec second{half.data(), half.size()};
    return mesh.write(peer, {&second, 1});
}

}  // namespace

TEST_CASE("A part that comes slowly does not hold up what is sent meanwhile", "[tcp]") {
    MemoryStore store;
    std::array<std::unique_ptr<Connected>, 2> ranks;  // neither goes away before both have ended
    const auto results =
        run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                      ranks[rank] = std::make_unique<Connected>(thread_spec(rank, 2, store));
                      const std::uint32_t peer = 1 - rank;
                      if (auto made = ranks[rank]->connect(peer); !made) return made;
                      Mesh& mesh = ranks[rank]->mesh();
                      return rank == 0 ? exchange_parts(mesh, peer) : hold_back(mesh, peer);
                  }));
    CHECK(failures(results) == "");
}
