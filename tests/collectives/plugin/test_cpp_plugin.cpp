#include "collectives/backends/plugin.h"
#include "collectives/backends/plugin_import.h"
#include "collectives/backends/tcp/group.h"
#include "tests/collectives/support/disagreements.h"
#include "tests/collectives/support/group_checks.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <stdexcept>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

/// A Group as it is behind both sides of plugin_abi.h.
template <plugin::Probe probe, plugin::Connect connect>
Backend through_c() {
    static const dtrun_plugin made = plugin::made_of<probe, connect>("test");
    auto backend = import_backend(&made, "test");
    REQUIRE(backend.has_value());
    return std::move(*backend);
}

Availability here() {
    return {true, "in this program"};
}

std::string text_of(const Operation& what) {
    return fmt::format("{} of {} {} from {} to {}, {}, root {}, {}", row_of(what.kind).name,
                       what.count, name_of(what.type), what.in, what.out, name_of(what.reduce),
                       what.root, fmt::join(what.counts, " "));
}

/// What a group was asked for last, which does as it is told.
struct Script {
    std::string call;
    bool throws = false;
    int aborts = 0;
    std::weak_ptr<void> mark;
    std::shared_ptr<void> followed;
    GroupSpec spec;
} script;

/// Keeps what it was given, and may throw.
class Scripted final : public Group {
public:
    explicit Scripted(const GroupSpec& spec) { script.spec = spec; }

    GroupFacts facts() const override { return {"1", "script", {{"a", "b"}, {"", ""}}}; }
    bool on_device() const override { return true; }
    Result<void> run(const Operation& what) override { return did("{}", text_of(what)); }
    Result<void> allreduce_many(std::span<const Array> arrays, DType type, Reduce) override {
        return did("many {} {} {}", arrays.size(), arrays.back().count, name_of(type));
    }
    Result<void> allreduce_compressed(std::span<const Segment> segments, Reduce reduce,
                                      const Compression& compression, std::uint64_t call) override {
        return did("compressed {} {} {} {} {} {} {}", segments.back().count,
                   segments.back().error == compression.error, name_of(reduce),
                   static_cast<int>(compression.format), static_cast<int>(compression.rounding),
                   static_cast<int>(compression.policy), call);
    }
    Result<void> allgather_on_host(const void*, void*, std::size_t bytes) override {
        return did("on host {}", bytes);
    }
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override {
        class Told final : public Pending {
        public:
            ~Told() override { script.call += ", ended"; }
            void poll() override { script.call += ", polled"; }
            Result<void> wait() override {
                if (script.throws) throw std::runtime_error("wait threw");
                script.call += ", waited";
                return {};
            }
        };
        auto done = did("start {} {} {}", sends.back().bytes, receives.size(),
                        receives.empty() ? 0 : receives.back().peer);
        if (!done) return std::unexpected(done.error());
        return std::make_unique<Told>();
    }
    void abort() noexcept override { ++script.aborts; }
    std::shared_ptr<void> mark(void* stream) override {
        auto set = std::make_shared<void*>(stream);
        script.mark = set;
        return set;
    }
    void follow(std::shared_ptr<void> mark) override { script.followed = std::move(mark); }

private:
    template <class... A>
    Result<void> did(fmt::format_string<A...> text, A&&... args) {
        script.call = fmt::format(text, std::forward<A>(args)...);
        if (script.throws) throw std::runtime_error(script.call + " threw");
        return {};
    }
};

Result<std::unique_ptr<Group>> connect_scripted(const GroupSpec& spec) {
    if (spec.prefix == "throw") throw std::runtime_error("no group");
    return std::make_unique<Scripted>(spec);
}

std::unique_ptr<Group> scripted(MemoryStore& store) {
    script = {};
    auto group = through_c<here, connect_scripted>().connect(thread_spec(2, 3, store));
    REQUIRE(group.has_value());
    return std::move(*group);
}

}  // namespace

TEST_CASE("every operation gives through C what it gives without", "[collectives][plugin]") {
    CheckOptions options;
    options.types = {DType::f32, DType::i8};
    options.reduces = {Reduce::sum, Reduce::average};
    options.large_bytes = 400'012;
    const Backend backend = through_c<here, over_tcp::connect>();
    CHECK(backend.probe().why == "in this program");
    const auto body = [&](Group& group, const GroupSpec& spec) {
        return check_group(group, spec, options);
    };
    CHECK(failures(run_ranks(3, backend.connect, body)) == "");
}

TEST_CASE("ranks that disagree wait through C for abort()", "[collectives][plugin]") {
    struct Connected {
        std::vector<std::unique_ptr<Group>> groups{2};
        Group& group(std::uint32_t rank) { return *groups[rank]; }
    };
    check_disagreements([](MemoryStore& store) {
        Connected connected;
        const Backend backend = through_c<here, over_tcp::connect>();
        const auto results = run_ranks(2, std::function([&](std::uint32_t rank) -> Result<void> {
                                           auto group =
                                               backend.connect(thread_spec(rank, 2, store));
                                           if (!group) return std::unexpected(group.error());
                                           connected.groups[rank] = std::move(*group);
                                           return {};
                                       }));
        REQUIRE(failures(results) == "");
        return connected;
    });
}

TEST_CASE("a group is told all of what it is to be", "[collectives][plugin]") {
    MemoryStore store;
    GroupSpec spec = thread_spec(2, 3, store, "prefix/");
    spec.members = {4, 7, 9};
    spec.topology = Topology(2, {0, 1, 0});
    spec.interfaces = {"eth0", "ib0"};
    spec.gpu = 3;
    spec.encrypt = true;
    spec.generation = 1ULL << 40;
    spec.interrupted = [] { return true; };
    const auto group = through_c<here, connect_scripted>().connect(spec);
    REQUIRE(group.has_value());
    const GroupSpec& told = script.spec;
    CHECK(told.rank == 2);
    CHECK(told.size == 3);
    CHECK(told.members == spec.members);
    CHECK(told.topology.host() == 0);
    CHECK(told.topology.hosts() == 2);
    CHECK(told.topology.place() == 1);
    CHECK(told.prefix == "prefix/");
    CHECK(told.timeout == spec.timeout);
    CHECK(told.interfaces == spec.interfaces);
    CHECK(told.address == "127.0.0.1");
    CHECK(told.local_rank == 2);
    CHECK(told.gpu == 3);
    CHECK(told.encrypt);
    CHECK(told.generation == 1ULL << 40);
    CHECK(told.interrupted());
    const KeyStore::Pair pairs[] = {{"a", std::string("x\0y", 3)}, {"b", ""}};
    CHECK(told.store->set(pairs).has_value());
    const std::string keys[] = {"b", "a"};
    CHECK(*told.store->get(keys, std::chrono::seconds(1)) ==
          std::vector<std::string>{"", std::string("x\0y", 3)});
    CHECK(told.store->find("b")->has_value());
    CHECK_FALSE(told.store->find("c")->has_value());
    const std::string missing[] = {"c"};
    const auto none = told.store->get(missing, std::chrono::milliseconds(1));
    CHECK(none.error().code == Errc::timed_out);
    CHECK(none.error().message == "nobody has set c");
}

TEST_CASE("operations cross with all of their arguments", "[collectives][plugin]") {
    MemoryStore store;
    const auto group = scripted(store);
    CHECK(group->on_device());
    CHECK(group->fuses());
    CHECK(group->facts().details ==
          std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"", ""}});
    float data[4] = {};
    const std::size_t parts[] = {1, 2, 3};
    const Array arrays[] = {{data, 1}, {data + 1, 3}};
    const Segment segments[] = {{data, data, 1}, {data + 1, data + 1, 3, data}};
    const auto last = [](const Result<void>& done) {
        return done ? script.call : done.error().message;
    };
    for (const OperationRow& row : kOperations) {
        const Operation what{row.kind, data, data + 1, 7, DType::bf16, Reduce::max, 2, parts};
        CHECK(last(group->run(what)) == text_of(what));
    }
    CHECK(last(group->allgather_on_host(data, data, 4)) == "on host 4");
    CHECK(last(group->allreduce_many(arrays, DType::f64, Reduce::sum)) == "many 2 3 f64");
    const Compression how{Format::int8, Rounding::stochastic, data, CompressionPolicy::always};
    CHECK(last(group->allreduce_compressed(segments, Reduce::average, how, 1ULL << 40)) ==
          "compressed 3 true average 5 1 1 1099511627776");
    {
        const Send send{1, data, 12};
        const Receive receives[] = {{0, data, 4}, {1, data, 8}};
        const auto pending = group->start({&send, 1}, receives);
        REQUIRE(pending.has_value());
        (*pending)->poll();
        CHECK((*pending)->wait().has_value());
    }
    CHECK(script.call == "start 12 2 1, polled, waited, ended");
}

TEST_CASE("marks of a stream outlive their group, and end where they were made",
          "[collectives][plugin]") {
    MemoryStore store;
    auto group = scripted(store);
    int stream = 0;
    auto mark = group->mark(&stream);
    group->follow(mark);
    CHECK(*static_cast<void**>(script.followed.get()) == &stream);
    script.followed.reset();
    group->follow(nullptr);
    CHECK(script.followed == nullptr);
    group.reset();
    CHECK_FALSE(script.mark.expired());
    mark.reset();
    CHECK(script.mark.expired());
}

TEST_CASE("exceptions of a plug-in end the group, and come back as errors",
          "[collectives][plugin]") {
    MemoryStore store;
    const auto group = scripted(store);
    auto pending = group->start(std::vector<Send>{{1, nullptr, 0}}, {});
    REQUIRE(pending.has_value());
    script.throws = true;
    CHECK((*pending)->wait().error().message == "wait threw");
    CHECK(group->run(op::barrier()).error().message == text_of(op::barrier()) + " threw");
    CHECK(group->run(op::barrier()).error().code == Errc::internal);
    CHECK(script.aborts == 2);
    const auto none =
        through_c<here, connect_scripted>().connect(thread_spec(0, 1, store, "throw"));
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().message == "no group");
}
