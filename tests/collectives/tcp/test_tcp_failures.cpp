#include "collectives/backends/tcp/group.h"
#include "collectives/backends/tcp/peer_listener.h"
#include "tests/collectives/support/disagreements.h"
#include "tests/collectives/support/tap.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <latch>
#include <mutex>

#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dtrun;
using namespace dtrun::collectives;
using namespace std::chrono_literals;

namespace {

/// Groups of `size` threads, connected.
std::vector<std::unique_ptr<Group>> make_groups(std::uint32_t size, MemoryStore& store) {
    std::vector<std::unique_ptr<Group>> groups(size);
    const auto results = run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                                       auto group =
                                           over_tcp::connect(thread_spec(rank, size, store));
                                       if (!group) return std::unexpected(group.error());
                                       groups[rank] = std::move(*group);
                                       return {};
                                   }));
    REQUIRE(failures(results) == "");
    return groups;
}

}  // namespace

TEST_CASE("abort() ends a call that waits, there and at the others", "[tcp]") {
    for (const bool messages : {false, true}) {
        MemoryStore store;
        auto groups = make_groups(3, store);
        // Connections for messages are made by the first ones.
        const auto greeted =
            run_ranks(3, std::function([&](std::uint32_t rank) {
                          char out = 0, in[3];
                          std::vector<Send> sends;
                          std::vector<Receive> receives;
                          for (std::uint32_t peer = 0; peer < 3; ++peer) {
                              if (peer == rank) continue;
                              sends.push_back({peer, &out, 1});
                              receives.push_back({peer, &in[peer], 1});
                          }
                          auto pending = groups[rank]->start(sends, receives);
                          return pending ? (*pending)->wait() : std::unexpected(pending.error());
                      }));
        REQUIRE(failures(greeted) == "");

        std::latch ready(3);
        const auto results =
            run_ranks(3, std::function([&](std::uint32_t rank) -> Result<void> {
                          if (rank == 2) {  // for whom the others wait
                              ready.arrive_and_wait();
                              groups[1]->abort();
                              return {};
                          }
                          if (!messages) {
                              ready.count_down();
                              return groups[rank]->run(op::barrier());
                          }
                          std::byte data[8];
                          const Receive receive{2, data, sizeof data};
                          auto pending = groups[rank]->start({}, {&receive, 1});
                          ready.count_down();
                          return pending ? (*pending)->wait() : std::unexpected(pending.error());
                      }));
        INFO((messages ? "messages" : "barrier"));
        REQUIRE_FALSE(results[0].has_value());
        REQUIRE_FALSE(results[1].has_value());
        CHECK(results[0].error().code == Errc::closed);
        CHECK(groups[0]->lost().has_value());  // rank 2 may have passed it on first
        CHECK(results[1].error().code == Errc::cancelled);
        CHECK(groups[1]->run(op::barrier()).error().code == Errc::cancelled);
        CHECK_FALSE(groups[1]->lost().has_value());
    }
}

TEST_CASE("A rank that goes away is named by all that wait for it or for each other", "[tcp]") {
    constexpr std::uint32_t kRanks = 5;
    MemoryStore store;
    auto groups = make_groups(kRanks, store);
    const auto results =
        run_ranks(kRanks, std::function([&](std::uint32_t rank) -> Result<void> {
                      std::vector<float> data(3 << 20, 1.0F);
                      for (int round = 0;; ++round) {
                          if (rank == 3 && round == 2) {
                              groups[rank].reset();
                              return {};
                          }
                          const auto done = groups[rank]->run(op::allreduce(
                              data.data(), data.data(), data.size(), DType::f32, Reduce::max));
                          if (!done) return done;
                      }
                  }));
    for (const std::uint32_t rank : {0u, 1u, 2u, 4u}) {
        INFO("rank " << rank);
        REQUIRE_FALSE(results[rank].has_value());
        CHECK(results[rank].error().code == Errc::closed);
        CHECK(groups[rank]->lost() == 3u);
        CHECK_THAT(results[rank].error().message, Catch::StartsWith("lost rank 3: "));
    }
}

TEST_CASE("A message that is half through when its sender goes ends", "[tcp]") {
    MemoryStore store;
    auto groups = make_groups(2, store);
    constexpr std::size_t kBytes = 64UL << 20;
    std::latch begun(1);
    const auto results = run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                                       std::vector<std::byte> data(kBytes);
                                       if (rank == 0) {
                                           const Receive receive{1, data.data(), kBytes};
                                           auto pending = groups[0]->start({}, {&receive, 1});
                                           if (!pending) return std::unexpected(pending.error());
                                           const auto done = (*pending)->wait();
                                           return done;
                                       }
                                       const Send send{0, data.data(), kBytes};
                                       auto pending = groups[1]->start({&send, 1}, {});
                                       if (!pending) return std::unexpected(pending.error());
                                       groups[1]->abort();
                                       return (*pending)->wait();
                                   }));
    REQUIRE_FALSE(results[0].has_value());
    REQUIRE_FALSE(results[1].has_value());
    CHECK(results[1].error().code == Errc::cancelled);
    CHECK(results[0].error().code == Errc::closed);
    CHECK(groups[0]->lost() == 1u);
}

TEST_CASE("A rank that has said all it had to may leave", "[tcp]") {
    constexpr std::size_t kBytes = 3'000'001;
    const auto results = run_ranks(
        3, std::function([](const GroupSpec& spec) -> Result<void> {
            auto group = over_tcp::connect(spec);
            if (!group) return std::unexpected(group.error());
            std::vector<unsigned char> data(kBytes, static_cast<unsigned char>(spec.rank));
            // A chain: 0 leaves first, while 1 and 2 still have to do with each other.
            if (spec.rank > 0) {
                const Receive receive{spec.rank - 1, data.data(), kBytes};
                auto pending = (*group)->start({}, {&receive, 1});
                if (!pending) return std::unexpected(pending.error());
                if (auto done = (*pending)->wait(); !done) return done;
            }
            if (spec.rank < 2) {
                const Send send{spec.rank + 1, data.data(), kBytes};
                auto pending = (*group)->start({&send, 1}, {});
                if (!pending) return std::unexpected(pending.error());
                if (auto done = (*pending)->wait(); !done) return done;
            }
            return std::ranges::count(data, 0) == kBytes ? Result<void>()
                                                         : fail(Errc::internal, "wrong data");
        }));
    CHECK(failures(results) == "");
}

TEST_CASE("Ranks that disagree wait until they are told, and nothing is overwritten", "[tcp]") {
    struct Connected {
        std::vector<std::unique_ptr<Group>> groups;
        Group& group(std::uint32_t rank) { return *groups[rank]; }
    };
    check_disagreements([](MemoryStore& store) { return Connected{make_groups(2, store)}; });
}

TEST_CASE("Who has not come is named", "[tcp]") {
    MemoryStore store;
    const auto results =
        run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                      GroupSpec spec = thread_spec(rank, 4, store);
                      spec.members = {10, 11, 12, 13};
                      spec.timeout = 200ms;
                      auto group = over_tcp::connect(spec);
                      return group ? Result<void>() : std::unexpected(group.error());
                  }));
    for (const auto& result : results) {
        REQUIRE_FALSE(result.has_value());
        CHECK(result.error().code == Errc::timed_out);
        CHECK(result.error().message == "ranks 12, 13 have not come within 0.2 s");
    }
}

TEST_CASE("A rank that cannot come tells the others why", "[tcp]") {
    const auto results =
        run_ranks(2, std::function([](const GroupSpec& spec) -> Result<void> {
                      GroupSpec own = spec;
                      if (own.rank == 1) own.interfaces = {"nosuch7"};
                      auto group = over_tcp::connect(own);
                      return group ? Result<void>() : std::unexpected(group.error());
                  }));
    REQUIRE_FALSE(results[0].has_value());
    CHECK_THAT(results[0].error().message,
               Catch::StartsWith("rank 1: no network interface nosuch7"));
}

TEST_CASE("A fork of a rank can end without harm", "[tcp]") {
    MemoryStore store;
    auto groups = make_groups(2, store);
    const pid_t child = fork();
    if (child == 0) {
        groups.clear();
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    const auto results = run_ranks(
        2, std::function([&](std::uint32_t rank) { return groups[rank]->run(op::barrier()); }));
    CHECK(failures(results) == "");
}

TEST_CASE("Who receives a message of another size is told at once, and nothing is overwritten",
          "[tcp]") {
    MemoryStore store;
    auto groups = make_groups(2, store);
    std::vector<float> data(12, 7.0F);
    const auto results =
        run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                      std::vector<float> out(10);
                      const Send send{1, out.data(), 40};
                      const Receive receive{0, data.data(), 44};
                      auto pending = rank == 0 ? groups[0]->start({&send, 1}, {})
                                               : groups[1]->start({}, {&receive, 1});
                      return pending ? (*pending)->wait() : std::unexpected(pending.error());
                  }));
    REQUIRE_FALSE(results[1].has_value());
    CHECK(results[1].error().message == "rank 0 has sent 40 B where this one receives 44 B");
    CHECK(data == std::vector<float>(12, 7.0F));
}

TEST_CASE("A message in the way of an operation of all ranks is told at once, on either side",
          "[tcp]") {
    for (const bool early : {true, false}) {
        MemoryStore store;
        auto groups = make_groups(2, store);
        float out = 1, in = 7;
        const auto results =
            run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                          const Send send{1, &out, 4};
                          const Receive receive{0, &in, 4};
                          // One of both is in an operation of all ranks, which has a number.
                          groups[rank]->expect((rank == 1) == early ? 5 : 0);
                          auto pending = rank == 0 ? groups[0]->start({&send, 1}, {})
                                                   : groups[1]->start({}, {&receive, 1});
                          return pending ? (*pending)->wait() : std::unexpected(pending.error());
                      }));
        REQUIRE_FALSE(results[1].has_value());
        CHECK(results[1].error().code == Errc::denied);
        CHECK(results[1].error().message ==
              (early
                   ? "ranks disagree: rank 0 has sent a message of 4 B before an operation of all "
                     "ranks, and rank 1 does not receive it before that"
                   : "ranks disagree: rank 0 is in an operation of all ranks, and has not sent "
                     "the message of 4 B that rank 1 receives before that"));
        CHECK(in == 7);
    }
}

namespace {

/// Somebody at the listener of a rank.
class Visitor {
public:
    explicit Visitor(const sockaddr_storage& listener) {
        auto socket = over_tcp::Socket::connect(listener);
        REQUIRE(socket.has_value());
        socket_ = std::move(*socket);
        REQUIRE(wait(POLLOUT));
    }
    void say(std::string_view bytes) {
        const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
        REQUIRE(socket_.send({&part, 1}).value_or(0) == bytes.size());
    }
    /// All that is said to him until he is turned away, or nothing is for 10 s.
    std::string listen() {
        std::string heard;
        for (std::array<char, 1024> room{};;) {
            if (!wait(POLLIN)) return heard + " and then nothing";
            const auto come = socket_.receive(room.data(), room.size());
            if (!come) return heard;
            heard.append(room.data(), *come);
        }
    }

private:
    bool wait(short event) {
        pollfd ready{socket_.fd(), event, 0};
        return ::poll(&ready, 1, 10'000) == 1;
    }

    over_tcp::Socket socket_;
};

/// Ranks 0 and 1, connected; what rank 0 says to rank 1 goes by the store's tap.
std::vector<std::unique_ptr<Group>> make_tapped(TappedStore& store, bool encrypt = false) {
    std::vector<std::unique_ptr<Group>> groups(2);
    const auto results = run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                                       GroupSpec spec = thread_spec(rank, 2, store);
                                       spec.encrypt = encrypt;
                                       auto group = over_tcp::connect(spec);
                                       if (!group) return std::unexpected(group.error());
                                       groups[rank] = std::move(*group);
                                       return {};
                                   }));
    REQUIRE(failures(results) == "");
    return groups;
}

constexpr std::size_t kHelloBytes = 56;

Result<std::unique_ptr<Pending>> send_text(Group& group, const std::string& text) {
    const Send send{1, text.data(), text.size()};
    return group.start({&send, 1}, {});
}

/// \param text  as long as what comes
Result<std::unique_ptr<Pending>> receive_text(Group& group, std::string& text) {
    const Receive receive{0, text.data(), text.size()};
    return group.start({}, {&receive, 1});
}

}  // namespace

TEST_CASE("Who comes in a rank's name without knowing what ranks know is turned away", "[tcp]") {
    TappedStore store;
    auto groups = make_tapped(store);
    // What rank 0 says first is held up, and somebody comes with a copy of it.
    store.tap().set(Tap::Way::hold);
    const std::string truth = "the truth";
    auto sending = send_text(*groups[0], truth);
    REQUIRE(sending.has_value());
    const std::string hello = store.tap().wait_for(1, kHelloBytes);
    Visitor visitor(store.tap().beyond());
    visitor.say(hello);
    visitor.say(std::string(32, 'x'));
    std::string heard, come = "nothing..";
    const auto results = run_ranks(3, std::function([&](std::uint32_t rank) -> Result<void> {
                                       if (rank == 0) return (*sending)->wait();
                                       if (rank == 1) {
                                           auto receiving = receive_text(*groups[1], come);
                                           return receiving ? (*receiving)->wait()
                                                            : std::unexpected(receiving.error());
                                       }
                                       heard = visitor.listen();
                                       store.tap().set(Tap::Way::pass);
                                       return {};
                                   }));
    CHECK(failures(results) == "");
    CHECK(come == truth);
    constexpr std::size_t kServerHelloBytes = 40;
    CHECK(heard.substr(std::min(kServerHelloBytes, heard.size())) == std::string(32, '\0'));
}

TEST_CASE("A crowd of strangers that greet as ranks do ends nothing", "[tcp]") {
    TappedStore store;
    auto groups = make_tapped(store);
    const std::string truth = "the truth";
    auto sending = send_text(*groups[0], truth);
    REQUIRE(sending.has_value());
    const std::string hello = store.tap().wait_for(1, kHelloBytes);
    // They come behind rank 0, which waits at the listener of rank 1 as long as that one computes.
    std::vector<std::unique_ptr<Visitor>> crowd;
    for (int i = 0; i < 300; ++i) {
        crowd.push_back(std::make_unique<Visitor>(store.tap().beyond()));
        crowd.back()->say(hello);
    }
    std::string come = "nothing..";
    const auto results =
        run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                      if (rank == 0) return (*sending)->wait();
                      auto receiving = receive_text(*groups[1], come);
                      return receiving ? (*receiving)->wait() : std::unexpected(receiving.error());
                  }));
    CHECK(failures(results) == "");
    CHECK(come == truth);
}

TEST_CASE("A rank that is closed before it was heard comes again", "[tcp]") {
    TappedStore store;
    auto groups = make_tapped(store);
    store.tap().set(Tap::Way::close);
    const std::string truth = "the truth";
    std::string come = "nothing..";
    const auto results = run_ranks(
        2, std::function([&](std::uint32_t rank) -> Result<void> {
            auto moving = rank == 0 ? send_text(*groups[0], truth) : receive_text(*groups[1], come);
            return moving ? (*moving)->wait() : std::unexpected(moving.error());
        }));
    CHECK(failures(results) == "");
    CHECK(come == truth);
    CHECK(store.tap().wait_for(2, kHelloBytes) != store.tap().wait_for(1, kHelloBytes));
}

TEST_CASE("What ranks with encryption say to each other is not seen by who passes it on", "[tcp]") {
    for (const bool encrypt : {false, true}) {
        INFO((encrypt ? "encrypted" : "in the clear"));
        TappedStore store;
        auto groups = make_tapped(store, encrypt);
        const std::string secret = "what nobody else is to read";
        std::string come(secret.size(), '.');
        const auto results = run_ranks(
            2, std::function([&](std::uint32_t rank) -> Result<void> {
                auto moving =
                    rank == 0 ? send_text(*groups[0], secret) : receive_text(*groups[1], come);
                if (!moving) return std::unexpected(moving.error());
                if (auto done = (*moving)->wait(); !done) return done;
                std::string again = rank == 0 ? secret : std::string(secret.size(), '.');
                if (auto done = groups[rank]->run(op::broadcast(again.data(), again.size(), 0));
                    !done)
                    return done;
                return again == secret ? Result<void>() : fail(Errc::internal, "{}", again);
            }));
        CHECK(failures(results) == "");
        CHECK(come == secret);
        const bool seen = store.tap().heard().find(secret) != std::string::npos;
        CHECK(seen != encrypt);
    }
}

TEST_CASE("Ranks of which only some want encryption are told so, all at once", "[tcp]") {
    const auto results =
        run_ranks(3, std::function([](const GroupSpec& given) -> Result<void> {
                      GroupSpec spec = given;
                      spec.encrypt = spec.rank == 1;
                      auto group = over_tcp::connect(spec);
                      return group ? Result<void>() : std::unexpected(group.error());
                  }));
    for (const auto& result : results) {
        REQUIRE_FALSE(result.has_value());
        CHECK_THAT(result.error().message, Catch::Contains("DTRUN_ENCRYPT has to be 1"));
    }
    CHECK_THAT(results[0].error().message,
               Catch::StartsWith("rank 1 wants encryption, and this rank does not"));
    CHECK_THAT(results[1].error().message,
               Catch::StartsWith("rank 0 wants no encryption, and this rank does"));
}
