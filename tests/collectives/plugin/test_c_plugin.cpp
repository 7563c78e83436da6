#include "collectives/backends/plugin_import.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <atomic>
#include <thread>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

constexpr std::uint32_t kRanks = 3, kOwn = 1;

std::unique_ptr<Group> connect(MemoryStore& store, const std::string& prefix = "c/",
                               std::function<bool()> interrupted = {}) {
    const auto backend = load_plugin(C_PLUGIN);
    REQUIRE(backend.has_value());
    GroupSpec spec = thread_spec(kOwn, kRanks, store, prefix);
    spec.interrupted = std::move(interrupted);
    auto group = backend->connect(spec);
    INFO((group ? "" : group.error().message));
    REQUIRE(group.has_value());
    return std::move(*group);
}

struct Called {
    const char* name;  ///< of the function in C
    std::function<Result<void>(Group& group)> call;
};

/// All of them, on data that all ranks have alike: two numbers for each rank.
std::vector<Called> operations(std::vector<float>& in, std::vector<float>& out) {
    constexpr std::size_t kBytes = 8;
    static const std::size_t parts[kRanks] = {4, 4, 4};
    return {
        {"allreduce",
         [&](Group& g) {
             return g.run(op::allreduce(in.data(), out.data(), 2, DType::f32, Reduce::sum));
         }},
        {"reduce",
         [&](Group& g) {
             return g.run(op::reduce(in.data(), out.data(), 2, DType::f32, Reduce::sum, kOwn));
         }},
        {"reduce_scatter",
         [&](Group& g) {
             return g.run(op::reduce_scatter(in.data(), out.data(), 2, DType::f32, Reduce::sum));
         }},
        {"broadcast", [&](Group& g) { return g.run(op::broadcast(out.data(), kBytes, 0)); }},
        {"allgather",
         [&](Group& g) { return g.run(op::allgather(in.data(), out.data(), kBytes)); }},
        {"allgatherv",
         [&](Group& g) { return g.run(op::allgatherv(in.data(), out.data(), parts)); }},
        {"gather",
         [&](Group& g) { return g.run(op::gather(in.data(), out.data(), kBytes, kOwn)); }},
        {"scatter", [&](Group& g) { return g.run(op::scatter(in.data(), out.data(), kBytes, 0)); }},
        {"alltoall", [&](Group& g) { return g.run(op::alltoall(in.data(), out.data(), kBytes)); }},
        {"barrier", [](Group& g) { return g.run(op::barrier()); }},
        {"start",
         [&](Group& g) -> Result<void> {
             const Send send{0, in.data(), kBytes};
             const Receive receive{0, out.data(), kBytes};
             const auto pending = g.start({&send, 1}, {&receive, 1});
             if (!pending) return std::unexpected(pending.error());
             (*pending)->poll();
             return (*pending)->wait();
         }},
    };
}

}  // namespace

TEST_CASE("a plug-in in C is a backend like any other", "[collectives][plugin]") {
    const auto backend = load_plugin(C_PLUGIN);
    REQUIRE(backend.has_value());
    CHECK(backend->probe().available);
    CHECK(backend->probe().why == "C is everywhere");
    MemoryStore store;
    const auto group = connect(store);
    CHECK(*store.find("c/key") == "value");
    const GroupFacts facts = group->facts();
    CHECK(facts.version == "C99");
    CHECK(facts.transport == "none");
    REQUIRE(facts.details.size() == 1);
    CHECK(facts.details[0] == std::pair<std::string, std::string>("language", "C"));
    CHECK_FALSE(group->on_device());
    CHECK_FALSE(group->fuses());
    CHECK(group->mark(nullptr) == nullptr);
    CHECK(group->lost() == std::nullopt);
}

TEST_CASE("operations reach a plug-in in C with their arguments", "[collectives][plugin]") {
    MemoryStore store;
    const auto group = connect(store);
    std::vector<float> in{1, 2, 3, 4, 5, 6};
    const std::pair<const char*, std::vector<float>> expected[] = {
        {"allreduce", {3, 6}},
        {"reduce", {3, 6}},
        {"reduce_scatter", {9, 12}},
        {"broadcast", {0, 0}},
        {"allgather", {1, 2, 1, 2, 1, 2}},
        {"allgatherv", {1, 1, 1}},
        {"gather", {1, 2, 1, 2, 1, 2}},
        {"scatter", {3, 4}},
        {"alltoall", {3, 4, 3, 4, 3, 4}},
        {"start", {1, 2}},
    };
    for (const auto& [name, values] : expected) {
        std::vector<float> out(6);
        for (const Called& operation : operations(in, out))
            if (operation.name == std::string_view(name)) {
                INFO(name);
                CHECK(operation.call(*group).has_value());
            }
        std::vector<float> all = values;
        all.resize(6);
        INFO(name);
        CHECK(out == all);
    }
    std::vector<float> one{1, 2}, other{3};
    const Array arrays[] = {{one.data(), 2}, {other.data(), 1}};
    CHECK(group->allreduce_many(arrays, DType::f32, Reduce::sum).has_value());
    CHECK(one == std::vector<float>{3, 6});
    CHECK(other == std::vector<float>{9});
    std::vector<float> all(3);
    CHECK(group->allgather_on_host(one.data(), all.data(), 4).has_value());
    CHECK(all == std::vector<float>(3, 3.0F));
    CHECK(group->run(op::allreduce(one.data(), one.data(), 2, DType::f64, Reduce::sum))
              .error()
              .message == "f32 alone");
    CHECK(group->allreduce_compressed({}, Reduce::sum, {}, 0).error().code == Errc::invalid_input);
}

TEST_CASE("every error of a plug-in in C has its code and its words", "[collectives][plugin]") {
    std::vector<float> in(6), out(6);
    int code = 0;
    for (const Called& operation : operations(in, out)) {
        MemoryStore store;
        code = code % DTRUN_PLUGIN_INTERNAL + 1;
        if (code == DTRUN_PLUGIN_NOT_FOUND) ++code;  // then the library takes another way
        const auto group = connect(store, fmt::format("fail {} {}", operation.name, code));
        group->expect(17);
        const auto done = operation.call(*group);
        INFO(operation.name);
        REQUIRE_FALSE(done.has_value());
        CHECK(static_cast<int>(done.error().code) == code - 1);
        CHECK(done.error().message == fmt::format("{} of call 17 fails", operation.name));
    }
    MemoryStore store;
    const auto waits = connect(store, "fail wait 99");
    const auto pending = waits->start({}, {});
    REQUIRE(pending.has_value());
    CHECK((*pending)->wait().error().code == Errc::internal);  // a code of the future

    const auto backend = load_plugin(C_PLUGIN);
    const auto none = backend->connect(thread_spec(0, 1, store, "fail connect 4"));
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().code == Errc::unreachable);
    CHECK(none.error().message == "it failed, and gives no reason");
}

TEST_CASE("errors of the store come back through a plug-in in C", "[collectives][plugin]") {
    class Broken final : public KeyStore {
        Result<void> set(std::span<const Pair>) override {
            return fail(Errc::closed, "the job is over");
        }
        Result<std::vector<std::string>> get(std::span<const std::string>,
                                             std::chrono::milliseconds) override {
            throw std::bad_alloc();
        }
        Result<std::optional<std::string>> find(const std::string&) override {
            return std::nullopt;
        }
    } store;
    const auto backend = load_plugin(C_PLUGIN);
    const auto group = backend->connect(thread_spec(0, 2, store));
    REQUIRE_FALSE(group.has_value());
    CHECK(group.error().code == Errc::closed);
    CHECK(group.error().message == "the job is over");
}

TEST_CASE("another thread aborts what a plug-in in C waits in, and the caller interrupts it",
          "[collectives][plugin]") {
    MemoryStore store;
    const auto group = connect(store);
    Result<void> done;
    std::thread waiting([&] { done = group->run(op::barrier()); });
    group->abort();
    waiting.join();
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().code == Errc::cancelled);
    CHECK(done.error().message == "aborted");
    CHECK(group->lost() == 1);

    int asked = 0;
    const auto impatient = connect(store, "c/", [&asked] { return ++asked > 0; });
    CHECK(impatient->run(op::barrier()).error().message == "interrupted");
    CHECK(asked == 1);
}
