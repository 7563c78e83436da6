#include "collectives/algorithms/stand_ins.h"

#include "tests/collectives/support/elements.h"
#include "tests/collectives/support/local_group.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <cmath>
#include <limits>

namespace dtrun::collectives {
namespace {

using Bytes = std::vector<std::byte>;

Bytes elements(DType type, std::size_t count, const std::function<long double(std::size_t)>& of) {
    Bytes bytes(count * bytes_of(type));
    for (std::size_t i = 0; i < count; ++i) store_element(&bytes[i * bytes_of(type)], type, of(i));
    return bytes;
}

struct Extreme {
    DType type;
    long double largest;
};
const Extreme kExtremes[] = {
    {DType::i8, 127}, {DType::u8, 255}, {DType::i32, 2'147'483'647}, {DType::f16, 65'504}};

}  // namespace

TEST_CASE("averages of the largest numbers are these numbers, however they are reduced",
          "[collectives]") {
    constexpr std::uint32_t kSize = 3;
    constexpr std::size_t kCount = 1000;
    for (const auto& [type, largest] : kExtremes) {
        const StandIn* const wider = average_stand_in(type);
        REQUIRE(wider != nullptr);
        LocalNetwork network(kSize);
        const auto results = run_ranks(
            kSize,
            std::function([&, type = type, largest = largest](std::uint32_t rank) -> Result<void> {
                const auto group = network.connect(rank);
                const auto all = elements(type, kCount * kSize, [=](std::size_t i) {
                    return i % 2 == 0 ? largest : -static_cast<long double>(i % 3);
                });
                const std::size_t width = bytes_of(type);
                StandInRoom room;
                Bytes data = all;
                // Two arrays, which lie apart and are reduced as one.
                const Reduced both[] = {
                    {data.data(), data.data(), 7},
                    {data.data() + 7 * width, data.data() + 7 * width, kCount * kSize - 7}};
                auto ok = allreduce_by(*wider, *group, room, both, type, Reduce::average);
                if (ok && data != all) return fail(Errc::internal, "allreduce");
                Bytes out(all.size());
                if (ok)
                    ok = run_by(*wider, *group, room, rank, kSize,
                                op::reduce(all.data(), rank == 1 ? out.data() : nullptr,
                                           kCount * kSize, type, Reduce::average, 1));
                if (ok && rank == 1 && out != all) return fail(Errc::internal, "reduce");
                Bytes part(kCount * width);
                if (ok)
                    ok = run_by(
                        *wider, *group, room, rank, kSize,
                        op::reduce_scatter(all.data(), part.data(), kCount, type, Reduce::average));
                if (ok && !std::equal(part.begin(), part.end(),
                                      all.begin() + static_cast<long>(rank * part.size())))
                    return fail(Errc::internal, "reduce_scatter");
                return ok;
            }));
        INFO(name_of(type));
        CHECK(failures(results) == "");
    }
    CHECK(average_stand_in(DType::f32) == nullptr);
    CHECK(average_stand_in(DType::i64) == nullptr);
}

TEST_CASE("integers that stand for floats have their order, and NaN wins", "[collectives]") {
    constexpr long double kInf = std::numeric_limits<long double>::infinity();
    const long double numbers[] = {-kInf, -1000,    -1, -0x1p-14L, -0.0L,
                                   0.0L,  0x1p-14L, 1,  1000,      kInf};
    for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
        for (const Reduce reduce : {Reduce::min, Reduce::max}) {
            INFO(name_of(type) << " " << name_of(reduce));
            const StandIn* const keys = ordered_stand_in(type, reduce);
            REQUIRE(keys != nullptr);
            const auto given =
                elements(type, std::size(numbers), [&](std::size_t i) { return numbers[i]; });
            Bytes room(std::size(numbers) * bytes_of(keys->type)), back(given.size());
            keys->put(given.data(), room.data(), std::size(numbers));
            keys->take(room.data(), back.data(), std::size(numbers));
            CHECK(back == given);
            const auto key = [&](const Bytes& bytes, std::size_t i) {
                return load_element(&bytes[i * bytes_of(keys->type)], keys->type);
            };
            for (std::size_t i = 1; i < std::size(numbers); ++i)
                CHECK(key(room, i - 1) < key(room, i));
            for (const long double nan :
                 {static_cast<long double>(NAN), -static_cast<long double>(NAN)}) {
                const auto one = elements(type, 1, [&](std::size_t) { return nan; });
                Bytes its(bytes_of(keys->type)), again(one.size());
                keys->put(one.data(), its.data(), 1);
                CHECK((reduce == Reduce::min ? key(its, 0) < key(room, 0)
                                             : key(its, 0) > key(room, std::size(numbers) - 1)));
                keys->take(its.data(), again.data(), 1);
                CHECK(std::isnan(load_element(again.data(), type)));
            }
        }
    }
    CHECK(ordered_stand_in(DType::i32, Reduce::min) == nullptr);
    CHECK(ordered_stand_in(DType::f32, Reduce::sum) == nullptr);
}

}  // namespace dtrun::collectives
