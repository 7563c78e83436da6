#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"
#include "worker/stores/horovod_rendezvous.h"
#include "worker/stores/local_store.h"

#include <fmt/format.h>
#include <map>

using namespace dtrun;
using namespace dtrun::stores;
using Catch::Contains;

namespace {

std::vector<RankSlot> slots(std::vector<std::uint32_t> ranks) {
    std::vector<RankSlot> all;
    for (const std::uint32_t rank : ranks) {
        RankSlot slot;
        slot.rank = Rank{rank};
        all.push_back(slot);
    }
    return all;
}

/// A store that counts what it is asked.
class CountingStore final : public JobStore {
public:
    explicit CountingStore(JobStore& store) : store_(store) {}

    std::map<Op, int> asked;
    int forgotten = 0;

private:
    Ticket start(const StoreRequest& request, Answer answer) override {
        ++asked[request.op];
        const Ticket ticket = ++last_;
        queries_[ticket] = store_.ask(request, std::move(answer));
        return ticket;
    }
    void forget(Ticket ticket) override {
        ++forgotten;
        queries_.erase(ticket);
    }

    JobStore& store_;
    std::map<Ticket, PendingQuery> queries_;
    Ticket last_ = 0;
};

/// One job's hosts on one store.
struct Job {
    struct Host {
        Host(Job& job, std::uint32_t world, std::vector<std::uint32_t> ranks)
            : store(job.store),
              rendezvous(store, world, slots(std::move(ranks)),
                         [&job](auto asker, const HttpAnswer& answer) {
                             CHECK(job.answers.emplace(asker, answer).second);
                         }) {}
        CountingStore store;
        HorovodRendezvous rendezvous;
    };

    Job(std::uint32_t world, std::vector<std::vector<std::uint32_t>> ranks_of_hosts) {
        for (auto& ranks : ranks_of_hosts)
            hosts.push_back(std::make_unique<Host>(*this, world, std::move(ranks)));
    }

    std::uint64_t ask(std::size_t host, std::string method, std::string target,
                      std::string body = {}) {
        hosts[host]->rendezvous.ask(++last, {std::move(method), std::move(target), std::move(body)},
                                    now);
        io.restart();
        io.poll();
        return last;
    }
    unsigned status(std::uint64_t asker) const {
        const auto answer = answers.find(asker);
        return answer == answers.end() ? 0 : answer->second.status;
    }
    unsigned put(std::size_t host, const std::string& target, std::string body = "x") {
        return status(ask(host, "PUT", target, std::move(body)));
    }
    /// The value, or the status in brackets; "(0)": held.
    std::string get(std::size_t host, const std::string& target) {
        const auto asker = ask(host, "GET", target);
        if (status(asker) != 200) return fmt::format("({})", status(asker));
        return std::string(answers.at(asker).bytes());
    }
    unsigned erase(std::size_t host, const std::string& target) {
        return status(ask(host, "DELETE", target));
    }

    asio::io_context io;
    LocalStore store{io.get_executor()};
    std::map<std::uint64_t, HttpAnswer> answers;
    std::vector<std::unique_ptr<Host>> hosts;
    std::uint64_t last = 0;
    Deadline now = Clock::now();
};

/// What a rank publishes in one round.
void publish(Job& job, std::size_t host, const std::string& scope, int rank, std::string value) {
    CHECK(job.put(host, fmt::format("/{}/rank_{}", scope, rank), "name") == 200);
    CHECK(job.put(host, fmt::format("/{}/{}", scope, rank), std::move(value)) == 200);
}

}  // namespace

TEST_CASE("the first PUT of a start is held until every rank of the job has come",
          "[worker][horovod]") {
    Job job(3, {{0, 1}, {2}});
    const auto second = job.ask(0, "PUT", "/global/rank_1", "a");
    job.now += std::chrono::seconds(40);
    const auto third = job.ask(1, "PUT", "/global/rank_2", "b");
    CHECK(job.status(second) == 0);
    CHECK(job.status(third) == 0);

    const auto waits = job.hosts[0]->rendezvous.waits(job.now);
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].rank == Rank{1});
    CHECK(waits[0].what == "all ranks to call hvd.init()");
    CHECK(waits[0].starting);
    CHECK(waits[0].waited_ms == 40'000);

    const auto first = job.ask(0, "PUT", "/global/rank_0", "c");
    for (const auto asker : {first, second, third}) CHECK(job.status(asker) == 200);
    CHECK(job.hosts[0]->rendezvous.waits(job.now).empty());
    // The names are known by then, on every host.
    CHECK(job.get(1, "/global/rank_0") == "c");
    CHECK(job.get(0, "/global/rank_2") == "b");
    CHECK(job.hosts[0]->store.asked[Op::add] == 1);
}

TEST_CASE("a rank that comes to the start barrier again over a new connection counts once",
          "[worker][horovod]") {
    Job job(2, {{0}, {1}});
    const auto lost = job.ask(0, "PUT", "/global/rank_0");
    job.hosts[0]->rendezvous.forget(lost);
    CHECK(job.hosts[0]->rendezvous.waits(job.now).empty());
    const auto again = job.ask(0, "PUT", "/global/rank_0");
    CHECK(job.status(again) == 0);
    CHECK(job.put(1, "/global/rank_1") == 200);
    CHECK(job.status(again) == 200);
    CHECK(job.status(lost) == 0);
    // And once more behind the start barrier: an answer can be lost too.
    CHECK(job.put(0, "/global/rank_0") == 200);
    CHECK(job.put(0, "/global/0", "of this round") == 200);
    CHECK(job.get(1, "/global/0") == "of this round");
}

TEST_CASE("a rank can start again and again, and never sees what was before", "[worker][horovod]") {
    Job job(2, {{0}, {1}});
    for (int round = 0; round < 5; ++round) {
        const auto first = job.ask(0, "PUT", "/global/rank_0", fmt::format("a{}", round));
        CHECK(job.status(first) == 0);
        CHECK(job.put(1, "/global/rank_1", fmt::format("b{}", round)) == 200);
        CHECK(job.status(first) == 200);
        CHECK(job.get(1, "/global/rank_0") == fmt::format("a{}", round));
        CHECK(job.put(0, "/global/0", fmt::format("A{}", round)) == 200);
        const auto held = job.ask(0, "GET", "/global/1");
        CHECK(job.status(held) == 0);
        CHECK(job.put(1, "/global/1", fmt::format("B{}", round)) == 200);
        CHECK(job.answers.at(held).bytes() == fmt::format("B{}", round));
        CHECK(job.get(1, "/global/0") == fmt::format("A{}", round));
        // The second one says this only in its next start's time, or never.
        CHECK(job.erase(0, "/global/0") == 200);
        if (round % 2 == 0) CHECK(job.erase(1, "/global/1") == 200);
    }
}

TEST_CASE("nothing is left in the store and on the hosts, however often ranks meet",
          "[worker][horovod]") {
    Job job(4, {{0, 1}, {2, 3}});
    std::size_t keys = 0;
    for (int round = 0; round < 20; ++round) {
        for (int rank = 0; rank < 4; ++rank) {
            job.ask(rank / 2, "PUT", fmt::format("/global/rank_{}", rank), "name");
            // Process sets have scopes of their own, at any time.
            publish(job, rank / 2, "cross_0_process_set_hash_ab", rank, std::string(1000, 'p'));
        }
        for (int rank = 0; rank < 4; ++rank)
            CHECK(job.put(rank / 2, fmt::format("/global/{}", rank), std::string(408, 'v')) == 200);
        for (int rank = 0; rank < 4; ++rank)
            CHECK(job.get(rank / 2, fmt::format("/global/{}", 3 - rank)).size() == 408);
        CHECK(job.hosts[0]->rendezvous.bytes() > 1000);
        for (int rank = 0; rank < 4; ++rank) {
            CHECK(job.erase(rank / 2, fmt::format("/global/{}", rank)) == 200);
            CHECK(job.erase(rank / 2, fmt::format("/cross_0_process_set_hash_ab/{}", rank)) == 200);
        }
        if (round == 0) keys = job.store.store().size();
    }
    CHECK(job.store.store().size() == keys);
    CHECK(keys == 2);  // of the start barrier
    CHECK(job.hosts[0]->rendezvous.bytes() == 0);
    CHECK(job.hosts[1]->rendezvous.bytes() == 0);
}

TEST_CASE("a rank that is in the next round already does not disturb one that ends the last",
          "[worker][horovod]") {
    Job job(2, {{0, 1}});
    publish(job, 0, "local_s1", 0, "first 0");
    publish(job, 0, "local_s1", 1, "first 1");
    // Rank 0 is through the barrier, and starts again before rank 1 has said DELETE.
    CHECK(job.erase(0, "/local_s1/0") == 200);
    publish(job, 0, "local_s1", 0, "second 0");
    const auto held = job.ask(0, "GET", "/local_s1/1");
    CHECK(job.status(held) == 0);  // not "first 1"
    CHECK(job.erase(0, "/local_s1/1") == 200);
    CHECK(job.status(held) == 0);
    publish(job, 0, "local_s1", 1, "second 1");
    CHECK(job.answers.at(held).bytes() == "second 1");
    CHECK(job.get(0, "/local_s1/0") == "second 0");
}

TEST_CASE("however many ranks of a host ask for a value, the job's store is asked once",
          "[worker][horovod]") {
    Job job(5, {{0, 1, 2, 3}, {4}});
    for (const int rank : {0, 1, 2, 3})
        CHECK(job.put(0, fmt::format("/cross_9/rank_{}", rank)) == 200);
    std::vector<std::uint64_t> askers;
    for (int rank = 0; rank < 4; ++rank) askers.push_back(job.ask(0, "GET", "/cross_9/4"));
    CHECK(job.hosts[0]->store.asked[Op::get] == 1);
    CHECK(job.hosts[0]->rendezvous.waits(job.now).size() == 4);
    publish(job, 1, "cross_9", 4, std::string("\0\xff\r\n", 4));
    for (const auto asker : askers)
        CHECK(job.answers.at(asker).bytes() == std::string("\0\xff\r\n", 4));
    CHECK(job.get(0, "/cross_9/4") == std::string("\0\xff\r\n", 4));
    CHECK(job.hosts[0]->store.asked[Op::get] == 1);
}

TEST_CASE("a value that does not come is answered with 404 after a second, and its wait goes on",
          "[worker][horovod]") {
    Job job(2, {{0}, {1}});
    CHECK(job.put(0, "/cross_0/rank_0") == 200);
    CHECK(job.get(0, "/cross_0/rank_1") == "(404)");  // nobody waits for that
    const auto held = job.ask(0, "GET", "/cross_0/1");
    CHECK(job.status(held) == 0);
    const auto started = Clock::now();
    job.io.run_for(std::chrono::seconds(3));
    CHECK(job.status(held) == 404);
    CHECK(Clock::now() - started > std::chrono::milliseconds(900));
    job.now += std::chrono::seconds(2);
    job.ask(0, "GET", "/cross_0/1");
    const auto waits = job.hosts[0]->rendezvous.waits(job.now);
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].rank == Rank{0});  // the only one here
    CHECK(waits[0].what == "key 1 of Horovod's cross_0");
    CHECK(waits[0].waited_ms == 2'000);
    CHECK_FALSE(waits[0].starting);
}

TEST_CASE("who has gone waits no more, nor does its host once all have", "[worker][horovod]") {
    Job job(3, {{0, 1}, {2}});
    CHECK(job.put(0, "/cross_0/rank_0") == 200);
    const auto a = job.ask(0, "GET", "/cross_0/1");
    const auto b = job.ask(0, "GET", "/cross_0/1");
    job.hosts[0]->rendezvous.forget(a);
    job.hosts[0]->rendezvous.forget(a);
    CHECK(job.store.store().waiting() == 1);
    job.hosts[0]->rendezvous.forget(b);
    CHECK(job.store.store().waiting() == 0);
    CHECK(job.hosts[0]->rendezvous.waits(job.now).empty());
    publish(job, 1, "cross_0", 1, "late");
    CHECK(job.answers.find(a) == job.answers.end());
    CHECK(job.get(0, "/cross_0/1") == "late");
}

TEST_CASE("what was asked for has its answer when the generation ends, or none",
          "[worker][horovod]") {
    asio::io_context io;
    LocalStore store(io.get_executor());
    int answers = 0;
    auto rendezvous = std::make_unique<HorovodRendezvous>(
        store, 2, slots({0}), [&](auto, const HttpAnswer&) { ++answers; });
    rendezvous->ask(1, {"PUT", "/global/rank_0", ""}, Clock::now());
    rendezvous->ask(2, {"PUT", "/cross_0/rank_0", ""}, Clock::now());
    rendezvous->ask(3, {"GET", "/cross_0/1", ""}, Clock::now());
    io.poll();
    CHECK(answers == 1);
    rendezvous.reset();
    io.run_for(std::chrono::seconds(2));  // the GET's time passes in the store
    CHECK(answers == 1);
}

TEST_CASE("a rank that the launcher put elsewhere, or nowhere, is refused with the reason",
          "[worker][horovod]") {
    Job job(4, {{0, 1}, {2, 3}});
    const auto elsewhere = job.ask(0, "PUT", "/global/rank_2");
    CHECK(job.status(elsewhere) == 403);
    CHECK_THAT(std::string(job.answers.at(elsewhere).bytes()),
               Contains("rank 2") && Contains("another host") && Contains("HOROVOD_RANK"));
    for (const char* method : {"PUT", "GET"}) {
        const auto nowhere = job.ask(0, method, "/global/rank_4");
        CHECK(job.status(nowhere) == 403);
        CHECK_THAT(std::string(job.answers.at(nowhere).bytes()), Contains("4 ranks"));
    }
    CHECK(job.status(job.ask(0, "GET", "/global/4")) == 403);
    // Gloo's addresses, one for each rank but itself.
    const auto other_size = job.ask(0, "PUT", "/global/1", std::string(4 * 136, 'a'));
    CHECK(job.status(other_size) == 403);
    CHECK_THAT(std::string(job.answers.at(other_size).bytes()),
               Contains("rank 1 counts 5 ranks") && Contains("HOROVOD_SIZE"));
    // Something else than that Gloo's addresses says nothing.
    CHECK(job.put(0, "/global/1", std::string(100, 'a')) == 200);
    CHECK(job.put(0, "/global/1", std::string(136, 'a')) == 200);
    CHECK(job.put(0, "/global/1", std::string(3 * 136, 'a')) == 200);
    // In other scopes numbers mean something else.
    CHECK(job.put(0, "/cross_1/rank_7") == 200);
    CHECK(job.status(job.ask(0, "GET", "/rank_and_size/s1:0")) == 403);
}

TEST_CASE("outside of rounds the store has bytes under names, never held", "[worker][horovod]") {
    Job job(2, {{0}, {1}});
    CHECK(job.get(0, "/runfunc/func") == "(404)");
    CHECK(job.put(0, "/runfunc/func", "one") == 200);
    CHECK(job.get(1, "/runfunc/func") == "one");
    CHECK(job.put(1, "/runfunc/func", "") == 200);
    CHECK(job.get(0, "/runfunc/func").empty());  // and is there
    CHECK(job.erase(0, "/runfunc/func") == 200);
    CHECK(job.erase(0, "/runfunc/func") == 200);
    CHECK(job.get(0, "/runfunc/func") == "(404)");
}

TEST_CASE("a path that names no key and a method that is none are refused", "[worker][horovod]") {
    Job job(1, {{0}});
    for (const char* path : {"/", "//", "/scope", "/scope/", "//key", "/a/b/c"})
        CHECK(job.status(job.ask(0, "GET", path)) == 400);
    CHECK(job.status(job.ask(0, "POST", "/a/b")) == 405);
    CHECK(job.status(job.ask(0, "HEAD", "/a/b")) == 405);
}

TEST_CASE("a value that is too large for the job's store is refused as the store says",
          "[worker][horovod]") {
    asio::io_context io;
    LocalStore store(io.get_executor(), {.bytes_max = 1'000});
    std::vector<HttpAnswer> answers;
    HorovodRendezvous rendezvous(
        store, 1, slots({0}), [&](auto, const HttpAnswer& answer) { answers.push_back(answer); });
    rendezvous.ask(1, {"PUT", "/a/b", std::string(2'000, 'x')}, Clock::now());
    io.poll();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].status == 500);
    CHECK_THAT(std::string(answers[0].bytes()), Contains("store"));
}

TEST_CASE("who is alone in a scope does not disturb others of the same name", "[worker][horovod]") {
    // Ranks 0, 2 and 4 of hosts with 1, 3 and 2: as Horovod places them in cross_0 of that set.
    Job job(6, {{0}, {1, 2, 3}, {4, 5}});
    const char* scope = "cross_0_process_set_hash_89848519578a1e21";
    publish(job, 0, scope, 0, "of rank 0");
    publish(job, 1, scope, 0, "");
    CHECK(job.erase(1, fmt::format("/{}/0", scope)) == 200);
    publish(job, 2, scope, 1, "of rank 4");
    CHECK(job.get(2, fmt::format("/{}/0", scope)) == "of rank 0");
    CHECK(job.get(0, fmt::format("/{}/1", scope)) == "of rank 4");
    CHECK(job.erase(0, fmt::format("/{}/0", scope)) == 200);
    CHECK(job.erase(2, fmt::format("/{}/1", scope)) == 200);
    CHECK(job.store.store().size() == 0);
}

TEST_CASE("who waits for a key that is deleted is told that it is not there", "[worker][horovod]") {
    Job job(1, {{0}});
    CHECK(job.put(0, "/set/rank_0", "name") == 200);
    const auto held = job.ask(0, "GET", "/set/foreign");
    const auto gone = job.ask(0, "GET", "/set/foreign");
    CHECK(job.status(held) == 0);
    CHECK(job.erase(0, "/set/foreign") == 200);
    CHECK(job.status(held) == 404);
    CHECK(job.hosts[0]->rendezvous.waits(job.now).empty());
    job.hosts[0]->rendezvous.forget(gone);
    CHECK(job.get(0, "/set/foreign") == "(0)");
}

TEST_CASE("a rank that begins again while others still gather waits for them",
          "[worker][horovod]") {
    Job job(2, {{0}, {1}});
    const auto first = job.ask(0, "PUT", "/global/rank_0", "a");
    CHECK(job.put(0, "/global/0", std::string(136, 'a')) == 200);
    const auto again = job.ask(0, "PUT", "/global/rank_0", "a");  // a new process, so to speak
    job.now += std::chrono::seconds(3);
    CHECK(job.hosts[0]->rendezvous.waits(job.now).size() == 2);
    CHECK(job.status(first) == 0);
    CHECK(job.put(1, "/global/rank_1", "b") == 200);
    CHECK(job.status(first) == 200);
    CHECK(job.status(again) == 0);
    CHECK(job.hosts[0]->rendezvous.waits(job.now).size() == 1);
}
