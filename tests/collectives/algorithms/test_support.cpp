#include "tests/collectives/support/elements.h"
#include "tests/collectives/support/group_checks.h"
#include "tests/collectives/support/local_group.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace dtrun::collectives {
namespace {

using Connect = std::function<std::unique_ptr<Group>(LocalNetwork& network, std::uint32_t rank)>;

std::string check_local(std::uint32_t size, LocalNetwork::Options network_options,
                        const CheckOptions& options, const Connect& connect) {
    LocalNetwork network(size, network_options);
    return failures(run_ranks(size, std::function([&](const GroupSpec& spec) -> Result<void> {
                                  const auto group = connect(network, spec.rank);
                                  return check_group(*group, spec, options);
                              })));
}

std::unique_ptr<Group> plain(LocalNetwork& network, std::uint32_t rank) {
    return network.connect(rank);
}

/// A group of which one operation is wrong, for the checks to find.
class Faulty final : public Group {
public:
    enum class Fault { one_bit, in_written, beyond_the_end, half_precision };

    Faulty(std::unique_ptr<Group> group, Fault fault) : group_(std::move(group)), fault_(fault) {}

    GroupFacts facts() const override { return group_->facts(); }
    Result<void> run(const Operation& what) override {
        auto ok = group_->run(what);
        auto* bytes = static_cast<unsigned char*>(what.out);
        if (what.kind == Operation::Kind::alltoall && fault_ == Fault::in_written && what.count > 1)
            ++const_cast<unsigned char*>(static_cast<const unsigned char*>(what.in))[1];
        if (what.kind != Operation::Kind::allreduce) return ok;
        if (fault_ == Fault::one_bit && what.count > 900 && what.type == DType::f32)
            bytes[4 * 900] ^= 1;
        if (fault_ == Fault::beyond_the_end && what.count > 0) ++bytes[what.bytes()];
        if (fault_ == Fault::half_precision && what.type == DType::f32)
            for (std::size_t i = 0; i < what.count; ++i) bytes[4 * i] = bytes[4 * i + 1] = 0;
        return ok;
    }
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override {
        return group_->start(sends, receives);
    }
    void abort() noexcept override { group_->abort(); }

private:
    std::unique_ptr<Group> group_;
    Fault fault_;
};

std::string check_faulty(Faulty::Fault fault) {
    CheckOptions options;
    options.large_bytes = 0;
    options.types = {DType::f32, DType::i8};
    return check_local(2, {}, options, [&](LocalNetwork& network, std::uint32_t rank) {
        return rank == 1 ? std::make_unique<Faulty>(network.connect(rank), fault)
                         : network.connect(rank);
    });
}

TEST_CASE("the group of threads passes the checks that backends must pass",
          "[collectives][support]") {
    CheckOptions options;
    options.large_bytes = 300'000;
    for (const std::uint32_t size : {1u, 2u, 3u, 5u}) {
        INFO(size << " ranks");
        CHECK(check_local(size, {}, options, plain) == "");
    }
    options.thorough = true;
    options.counts = {17};
    options.misalign = 1;
    LocalNetwork::Options late{.seed = 7, .delay_max = std::chrono::microseconds(50)};
    CHECK(check_local(3, late, options, plain) == "");
}

TEST_CASE("the checks name the operation, type, count and element that is wrong",
          "[collectives][support]") {
    using Fault = Faulty::Fault;
    CHECK_THAT(check_faulty(Fault::one_bit),
               Catch::Contains("rank 1 of 2: allreduce f32 sum of 1027: element 900 is") ||
                   Catch::Contains("rank 1 of 2: allreduce f32 sum of 1027, in place: "
                                   "element 900 is"));
    CHECK_THAT(check_faulty(Fault::beyond_the_end),
               Catch::Contains("bytes outside of the data were written"));
    CHECK_THAT(check_faulty(Fault::in_written),
               Catch::Contains("alltoall of 1027 B: input: byte 1 is"));
    CHECK_THAT(check_faulty(Fault::half_precision), Catch::Contains("allreduce f32 sum of"));
}

TEST_CASE("elements of every type survive being stored and loaded", "[collectives][support]") {
    std::byte bytes[8];
    for (std::uint32_t bits = 0; bits < 65'536; ++bits)
        for (const DType type : {DType::f16, DType::bf16}) {
            const auto half = static_cast<std::uint16_t>(bits);
            std::memcpy(bytes, &half, sizeof half);
            const long double value = load_element(bytes, type);
            if (std::isnan(value)) continue;
            store_element(bytes, type, value);
            if (std::memcmp(bytes, &half, sizeof half) != 0) FAIL("half " << bits);
        }
    const auto stored = [&](DType type, long double value) {
        store_element(bytes, type, value);
        return load_element(bytes, type);
    };
    CHECK(stored(DType::f16, 2049) == 2048);  // to even
    CHECK(stored(DType::f16, 2051) == 2052);
    CHECK(stored(DType::f16, 65'519) == 65'504);
    CHECK(std::isinf(stored(DType::f16, 65'520)));
    CHECK(stored(DType::f16, 0x1p-25L) == 0);
    CHECK(stored(DType::bf16, 257) == 256);
    CHECK(stored(DType::i8, 130) == -126);
    CHECK(stored(DType::i64, -9'007'199'254'740'993) == -9'007'199'254'740'993);
    CHECK(stored(DType::i64, std::numeric_limits<std::int64_t>::max()) ==
          std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("ranks that wait for a killed one are told so", "[collectives][support]") {
    LocalNetwork network(3);
    const auto results = run_ranks(3, std::function([&](std::uint32_t rank) -> Result<void> {
                                       const auto group = network.connect(rank);
                                       if (rank == 2) {
                                           network.kill(2);
                                           return {};
                                       }
                                       return group->run(op::barrier());
                                   }));
    for (const std::uint32_t rank : {0u, 1u}) {
        REQUIRE_FALSE(results[rank].has_value());
        CHECK(results[rank].error().code == Errc::closed);
        CHECK(results[rank].error().message == "rank 2 is gone");
    }
}

}  // namespace
}  // namespace dtrun::collectives
