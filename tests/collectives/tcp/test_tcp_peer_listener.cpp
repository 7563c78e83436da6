#include "base/result.h"
#include "collectives/backends/tcp/peer_listener.h"
#include "tests/support/catch.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <algorithm>
#include <filesystem>
#include <vector>

using namespace dtrun;
using namespace dtrun::collectives::over_tcp;

namespace {

/// Whoever connects to a listener, from 127.0.0.`host`; they have come once this returns, as the system takes them.
std::vector<Socket> callers(const PeerListener& listener, int count, std::uint32_t host = 1) {
    const sockaddr_storage address = listener.address();
    std::vector<Socket> all;
    for (int i = 0; i < count; ++i) {
        Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in own{};
        own.sin_family = AF_INET;
        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
        REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
        REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof own) == 0);
        all.emplace_back(std::move(fd));
    }
    return all;
}

void say(const Socket& socket, std::span<const std::uint8_t> bytes) {
    const iovec part{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
    REQUIRE(socket.send({&part, 1}).value_or(0) == bytes.size());
}

template <class Record>
Record hear(const Socket& socket) {
    Record record{};
    for (std::size_t heard = 0; heard < record.size();) {
        pollfd readable{socket.fd(), POLLIN, 0};
        REQUIRE(::poll(&readable, 1, 10'000) == 1);
        const auto come = socket.receive(record.data() + heard, record.size() - heard);
        REQUIRE(come.has_value());
        heard += *come;
    }
    return record;
}

constexpr std::uint32_t kOwnRank = 3;

Terms terms() {
    std::array<std::uint8_t, Secret::kBytes> bytes{};
    bytes.fill(7);
    return {Secret(bytes), false};
}

ClientRecord hello_of(const ConnectRequest& request) {
    return encode_hello(ClientHello{.job = encode(request), .nonce = random_nonce()});
}

/// What rank 0 has said to the listener of rank 3, which has looked after each word.
struct Said {
    ClientRecord hello{};
    Sha256 proof{};
    bool was_let_in = false;
};
Said greet(const Socket& socket, PeerListener& listener, const Terms& known = terms()) {
    Said said;
    said.hello = hello_of({ConnectionKind::messages, 0, kOwnRank});
    say(socket, said.hello);
    listener.advance(kOwnRank, terms());
    const Proofs proofs = make_proofs(known.secret, said.hello, hear<ServerRecord>(socket));
    said.proof = proofs.client;
    say(socket, said.proof);
    listener.advance(kOwnRank, terms());
    said.was_let_in = hear<Sha256>(socket) == proofs.server;
    return said;
}

std::unique_ptr<PeerListener> open_door(std::uint32_t ranks = 4) {
    auto listener = PeerListener::open("127.0.0.1", ranks);
    REQUIRE(listener.has_value());
    return std::move(*listener);
}

void look(PeerListener& listener) {
    listener.advance(kOwnRank, terms());
}

bool was_turned_away(const Socket& socket) {
    std::array<std::byte, 128> any{};
    for (;;) {
        const auto come = socket.receive(any.data(), any.size());
        if (!come || *come == 0) return !come;
    }
}

/// Leaves this process so many descriptors, for as long as it lives.
class FewDescriptors {
public:
    explicit FewDescriptors(std::size_t left) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        std::size_t highest = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
            highest = std::max<std::size_t>(highest, std::stoul(entry.path().filename()));
        // All numbers below the limit are taken, so that none is free but those above.
        while ((filling_.emplace_back(::dup(0)), filling_.back() >= 0) &&
               static_cast<std::size_t>(filling_.back()) <= highest) {
        }
        const rlimit few{highest + 2 + left, before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &few);
    }
    ~FewDescriptors() {
        for (const int fd : filling_) ::close(fd);
        ::setrlimit(RLIMIT_NOFILE, &before_);
    }
    FewDescriptors(const FewDescriptors&) = delete;
    FewDescriptors& operator=(const FewDescriptors&) = delete;

private:
    rlimit before_{};
    std::vector<int> filling_;
};

}  // namespace

TEST_CASE("Whoever has proved to be a rank is there for who asks for that rank and kind", "[tcp]") {
    const auto listener = open_door();
    const Socket peer = std::move(callers(*listener, 1).front());
    CHECK(greet(peer, *listener).was_let_in);
    CHECK_FALSE(listener->take(ConnectionKind::streams, 0).has_value());
    CHECK_FALSE(listener->take(ConnectionKind::messages, 1).has_value());
    CHECK(listener->take(ConnectionKind::messages, 0).has_value());
    CHECK_FALSE(listener->take(ConnectionKind::messages, 0).has_value());
}

TEST_CASE("A recorded greeting opens no door", "[tcp]") {
    const auto listener = open_door();
    const std::vector<Socket> both = callers(*listener, 2);
    const Said said = greet(both[0], *listener);
    REQUIRE(said.was_let_in);
    REQUIRE(listener->take(ConnectionKind::messages, 0).has_value());
    say(both[1], said.hello);
    say(both[1], said.proof);
    look(*listener);
    CHECK_FALSE(listener->take(ConnectionKind::messages, 0).has_value());
    hear<ServerRecord>(both[1]);
    CHECK(hear<Sha256>(both[1]) == Sha256{});
    CHECK(was_turned_away(both[1]));
}

TEST_CASE("Who knows another secret, or comes as a rank that does not ask, is turned away",
          "[tcp]") {
    const auto listener = open_door();
    const std::vector<Socket> all = callers(*listener, 2);
    CHECK_FALSE(greet(all[0], *listener, {Secret::random(), false}).was_let_in);
    CHECK(was_turned_away(all[0]));
    // The lower rank asks: 3 does not ask itself.
    const ClientRecord hello = hello_of({ConnectionKind::messages, kOwnRank, kOwnRank});
    say(all[1], hello);
    look(*listener);
    say(all[1], make_proofs(terms().secret, hello, hear<ServerRecord>(all[1])).client);
    look(*listener);
    CHECK(was_turned_away(all[1]));
    CHECK_FALSE(listener->take(ConnectionKind::messages, kOwnRank).has_value());
}

TEST_CASE("Of many strangers at a listener, silent or not, the oldest are turned away", "[tcp]") {
    for (const bool silent : {true, false}) {
        INFO((silent ? "silent" : "not silent"));
        const auto listener = open_door();
        const std::vector<Socket> strangers = callers(*listener, 268);
        if (!silent)
            for (const Socket& one : strangers)
                say(one, hello_of({ConnectionKind::messages, 0, kOwnRank}));
        look(*listener);
        CHECK(std::ranges::count_if(strangers, was_turned_away) == 4);
        CHECK(was_turned_away(strangers[3]));
    }
}

TEST_CASE("A crowd of strangers at a door turns away neither who has proved himself nor others",
          "[tcp]") {
    const auto listener = open_door();
    const Socket peer = std::move(callers(*listener, 1).front());
    REQUIRE(greet(peer, *listener).was_let_in);
    const Socket slow = std::move(callers(*listener, 1, 2).front());
    const ClientRecord hello = hello_of({ConnectionKind::streams, 1, kOwnRank});
    say(slow, hello);
    const std::vector<Socket> crowd = callers(*listener, 300);
    for (const Socket& one : crowd) say(one, hello_of({ConnectionKind::messages, 0, kOwnRank}));
    look(*listener);
    CHECK(listener->take(ConnectionKind::messages, 0).has_value());
    say(slow, make_proofs(terms().secret, hello, hear<ServerRecord>(slow)).client);
    look(*listener);
    CHECK(listener->take(ConnectionKind::streams, 1).has_value());
}

TEST_CASE("Without descriptors strangers are turned away, and whoever has proved himself stays",
          "[tcp]") {
    const auto listener = open_door();
    const Socket peer = std::move(callers(*listener, 1).front());
    REQUIRE(greet(peer, *listener).was_let_in);
    const std::vector<Socket> all = callers(*listener, 19);
    {
        const FewDescriptors few(4);
        look(*listener);
        CHECK(std::ranges::count_if(all, was_turned_away) == 15);
        CHECK_FALSE(was_turned_away(all[18]));
    }
    CHECK(listener->take(ConnectionKind::messages, 0).has_value());
}

TEST_CASE("A listener without a descriptor for whoever is next does not wake up for them",
          "[tcp]") {
    const auto listener = open_door();
    const std::vector<Socket> all = callers(*listener, 1);
    std::vector<pollfd> waits;
    {
        const FewDescriptors few(0);
        look(*listener);
        listener->add_to(waits);
        CHECK(waits.empty());
    }
    look(*listener);
    listener->add_to(waits);
    CHECK(waits.size() == 2);
    listener->add_to(waits);
    CHECK(waits.size() == 2);
}
