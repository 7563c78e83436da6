#include "collectives/algorithms/compressed.h"
#include "tests/collectives/nccl/fake_fixture.h"
#include "tests/collectives/support/formats.h"
#include "tests/collectives/support/local_group.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace dtrun::collectives::nccl {
namespace {

using Values = std::vector<float>;

Values gaussian(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Values values(count);
    for (float& value : values) value = normal(random);
    return values;
}

bool same_bits(const Values& a, const Values& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// One allreduce of several tensors: what ranks have, and what they keep.
struct Case {
    std::vector<std::size_t> counts;
    Format format = Format::e4m3;
    Rounding rounding = Rounding::nearest;
    Reduce reduce = Reduce::sum;
    bool in_place = false;
    bool feedback = false;
    std::uint64_t call = 1;

    std::string text() const {
        return fmt::format("{}{} {} of {} tensors, the first of {}{}", name_of(format),
                           rounding == Rounding::stochastic ? " stochastic" : "", name_of(reduce),
                           counts.size(), counts.front(), feedback ? ", with feedback" : "");
    }
    Values in(std::uint32_t rank, std::size_t tensor) const {
        return gaussian(counts[tensor], 1 + rank * 100 + static_cast<unsigned>(tensor));
    }
    /// Every third tensor keeps no errors.
    bool keeps_errors(std::size_t tensor) const { return feedback && tensor % 3 != 2; }
    Values error(std::uint32_t rank, std::size_t tensor) const {
        return gaussian(counts[tensor], 7000 + rank * 100 + static_cast<unsigned>(tensor));
    }
};

/// Results of one rank, by tensor; errors of those that keep none are empty.
struct Results {
    std::vector<Values> out;
    std::vector<Values> errors;
};

std::vector<Results> on_cpu(const Case& c, std::uint32_t size) {
    std::vector<Results> all(size);
    LocalNetwork network(size);
    const auto results =
        run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                      const auto group = network.connect(rank);
                      Results& mine = all[rank];
                      std::vector<Values> in;
                      for (std::size_t i = 0; i < c.counts.size(); ++i) {
                          in.push_back(c.in(rank, i));
                          mine.out.emplace_back(c.counts[i]);
                          mine.errors.push_back(c.keeps_errors(i) ? c.error(rank, i) : Values());
                      }
                      std::vector<Segment> segments;
                      for (std::size_t i = 0; i < c.counts.size(); ++i)
                          segments.push_back({in[i].data(), mine.out[i].data(), c.counts[i],
                                              c.keeps_errors(i) ? mine.errors[i].data() : nullptr});
                      return CompressedAllreduce().run(*group, rank, size, segments, c.reduce,
                                                       {c.format, c.rounding}, c.call);
                  }));
    REQUIRE(failures(results) == "");
    return all;
}

Result<Results> on_gpu(const Case& c, Group& group, std::uint32_t rank, const Library& library) {
    std::vector<std::unique_ptr<Numbers>> in;
    std::vector<std::unique_ptr<Numbers>> out;
    std::vector<std::unique_ptr<Numbers>> errors;
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < c.counts.size(); ++i) {
        in.push_back(std::make_unique<Numbers>(library, c.in(rank, i)));
        out.push_back(std::make_unique<Numbers>(library, Values(c.counts[i], -7)));
        errors.push_back(std::make_unique<Numbers>(library, c.error(rank, i)));
        segments.push_back({in[i]->data(), c.in_place ? in[i]->data() : out[i]->data(), c.counts[i],
                            c.keeps_errors(i) ? errors[i]->data() : nullptr});
    }
    const auto ok = group.allreduce_compressed(segments, c.reduce, {c.format, c.rounding}, c.call);
    if (!ok) return fail(ok.error(), "{}", c.text());
    Results results;
    for (std::size_t i = 0; i < c.counts.size(); ++i) {
        if (!c.in_place && !same_bits(in[i]->values(), c.in(rank, i)))
            return fail(Errc::internal, "{}: the input was written", c.text());
        results.out.push_back((c.in_place ? in : out)[i]->values());
        results.errors.push_back(c.keeps_errors(i) ? errors[i]->values() : Values());
    }
    return results;
}

/// Does all of them with one group on fake GPUs.
std::vector<std::vector<Results>> all_on_gpu(const std::vector<Case>& cases, std::uint32_t size,
                                             const Settings& settings) {
    const Library library = fake();
    std::vector<std::vector<Results>> all(cases.size(), std::vector<Results>(size));
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        for (std::size_t i = 0; i < cases.size(); ++i) {
            auto results = on_gpu(cases[i], group, spec.rank, library);
            if (!results) return std::unexpected(results.error());
            all[i][spec.rank] = std::move(*results);
        }
        return {};
    };
    REQUIRE(failures(on_fake(size, body, library, settings)) == "");
    return all;
}

/// A few blocks for each round, so that a few thousand values are many rounds.
Settings small_rounds() {
    Settings settings;
    settings.compressed_values = 6 * kBlock;
    return settings;
}

/// Rounded to nearest, GPUs give the bits of the CPU.
void check_against_cpu(const std::vector<Case>& cases, std::uint32_t size,
                       const Settings& settings) {
    const auto all = all_on_gpu(cases, size, settings);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const auto should = on_cpu(cases[i], size);
        for (std::uint32_t rank = 0; rank < size; ++rank)
            for (std::size_t tensor = 0; tensor < cases[i].counts.size(); ++tensor) {
                INFO(size << " ranks: " << cases[i].text() << ": rank " << rank << ", tensor "
                          << tensor);
                CHECK(same_bits(all[i][rank].out[tensor], should[rank].out[tensor]));
                CHECK(same_bits(all[i][rank].errors[tensor], should[rank].errors[tensor]));
            }
    }
}

double relative_error(const Values& is, const Case& c, std::uint32_t size) {
    double wrong = 0;
    double norm = 0;
    std::vector<Values> in;
    for (std::uint32_t rank = 0; rank < size; ++rank) in.push_back(c.in(rank, 0));
    for (std::size_t i = 0; i < is.size(); ++i) {
        double should = 0;
        for (const Values& one : in) should += one[i];
        if (c.reduce == Reduce::average) should /= size;
        wrong += std::pow(is[i] - should, 2);
        norm += std::pow(should, 2);
    }
    return std::sqrt(wrong / norm);
}

}  // namespace

TEST_CASE("a compressed allreduce on GPUs has the bits of that on CPUs", "[nccl][compressed]") {
    for (const std::uint32_t size : {2u, 3u, 4u})
        for (const bool rounds : {false, true}) {
            std::vector<Case> cases;
            for (const std::size_t count : {0, 1, 255, 256, 257, 1'025, 9'011})
                for (const Format format : kAllFormats) {
                    const std::size_t turn = cases.size() + size;
                    cases.push_back({.counts = {count},
                                     .format = format,
                                     .reduce = turn % 2 == 0 ? Reduce::sum : Reduce::average,
                                     .in_place = turn % 3 == 0,
                                     .feedback = turn % 5 < 2});
                }
            check_against_cpu(cases, size, rounds ? small_rounds() : Settings());
        }
}

TEST_CASE("a large compressed allreduce on GPUs has the bits of that on CPUs",
          "[nccl][compressed]") {
    const std::vector<Case> cases{{.counts = {600'007}, .format = Format::int8, .feedback = true},
                                  {.counts = {262'144}, .format = Format::f16}};
    check_against_cpu(cases, 3, {});
    Settings settings;
    settings.compressed_values = 100'000;
    check_against_cpu(cases, 3, settings);
}

TEST_CASE("many tensors on GPUs are compressed as one, with the errors of those that keep them",
          "[nccl][compressed]") {
    std::vector<std::size_t> tiny(300, 3);
    const std::vector<Case> cases{
        {.counts = {700, 0, 1, 5'000, 255, 0, 4'096, 31}, .format = Format::int8, .feedback = true},
        {.counts = {700, 0, 1, 5'000, 255, 0, 4'096, 31}, .in_place = true},
        {.counts = {10, 20'000, 10},
         .format = Format::bf16,
         .reduce = Reduce::average,
         .in_place = true,
         .feedback = true},
        {.counts = tiny, .reduce = Reduce::average, .feedback = true},
        {.counts = {0, 0, 0}, .feedback = true},
    };
    for (const std::uint32_t size : {2u, 4u}) {
        check_against_cpu(cases, size, {});
        check_against_cpu(cases, size, small_rounds());
    }
}

TEST_CASE("rounded at random, all GPUs have the same bits, and others in the next call",
          "[nccl][compressed]") {
    constexpr std::uint32_t kSize = 3;
    std::vector<Case> cases;
    for (const Format format : kAllFormats)
        for (const std::uint64_t call : {1, 1, 2})
            cases.push_back({.counts = {9'011},
                             .format = format,
                             .rounding = Rounding::stochastic,
                             .call = call});
    for (const Settings& settings : {Settings(), small_rounds()}) {
        const auto all = all_on_gpu(cases, kSize, settings);
        for (std::size_t i = 0; i < cases.size(); ++i) {
            INFO(cases[i].text());
            for (const Results& one : all[i]) CHECK(same_bits(one.out[0], all[i][0].out[0]));
            const double error = relative_error(all[i][0].out[0], cases[i], kSize);
            CHECK(error < 2 * bound(cases[i].format));
            CHECK(error > bound(cases[i].format) / 10);
        }
        for (std::size_t i = 0; i < cases.size(); i += 3) {
            CHECK(same_bits(all[i][0].out[0], all[i + 1][0].out[0]));
            CHECK_FALSE(same_bits(all[i][0].out[0], all[i + 2][0].out[0]));
        }
    }
}

TEST_CASE("error feedback on GPUs makes up for what compression has lost", "[nccl][compressed]") {
    constexpr std::uint32_t kSize = 3;
    constexpr std::size_t kCount = 2'000;
    constexpr int kSteps = 60;
    const Library library = fake();
    const auto accumulated = [&](Rounding rounding, bool feedback) {
        const Case c{.counts = {kCount}};
        Values total(kCount);
        const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
            const Numbers in(library, c.in(spec.rank, 0));
            const Numbers out(library, Values(kCount));
            const Numbers error(library, Values(kCount));
            const Segment segment{in.data(), out.data(), kCount, feedback ? error.data() : nullptr};
            for (std::uint64_t step = 0; step < kSteps; ++step) {
                auto ok = group.allreduce_compressed({&segment, 1}, Reduce::sum,
                                                     {Format::e4m3, rounding}, step);
                if (!ok) return ok;
                const Values values = out.values();
                for (std::size_t i = 0; spec.rank == 0 && i < kCount; ++i)
                    total[i] += values[i] / kSteps;
            }
            return {};
        };
        CHECK(failures(on_fake(kSize, body, library)) == "");
        return relative_error(total, c, kSize);
    };
    CHECK(accumulated(Rounding::nearest, true) < accumulated(Rounding::nearest, false) / 5);
    CHECK(accumulated(Rounding::stochastic, true) < accumulated(Rounding::stochastic, false) / 2);
}

TEST_CASE("what is not finite is seen on every GPU, and errors stay finite", "[nccl][compressed]") {
    const Library library = fake();
    constexpr std::size_t kBad = 1'000;
    std::vector<Values> outs(3);
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        Values values = gaussian(3'000, spec.rank);
        if (spec.rank == 1) values[kBad] = std::numeric_limits<float>::infinity();
        const Numbers data(library, values);
        const Numbers error(library, Values(3'000));
        const Segment segment{data.data(), data.data(), 3'000, error.data()};
        auto ok = group.allreduce_compressed({&segment, 1}, Reduce::sum, {Format::e4m3}, 1);
        outs[spec.rank] = data.values();
        for (const float one : error.values())
            if (!std::isfinite(one)) return fail(Errc::internal, "an error of {}", one);
        return ok;
    };
    CHECK(failures(on_fake(3, body, library)) == "");
    for (const Values& out : outs) {
        CHECK_FALSE(std::isfinite(out[kBad]));
        CHECK(std::isfinite(out[kBad + kBlock]));
        CHECK(same_bits(out, outs[0]));
    }
}

TEST_CASE("a single GPU gets back what it gave, and needs no codecs", "[nccl][compressed]") {
    const Library library = fake();
    Settings settings;
    settings.codecs = "/nowhere/libdtrun_codec_cuda.so";
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        const Numbers in(library, {1, 1e-9F, 3});
        const Numbers out(library, {0, 0, 0});
        const Numbers error(library, {0.5F, 0.5F, 0.5F});
        const Segment segment{in.data(), out.data(), 3, error.data()};
        auto ok = group.allreduce_compressed({&segment, 1}, Reduce::average, {}, 1);
        if (ok && (out.values() != in.values() || error.values() != Values{0.5F, 0.5F, 0.5F}))
            return fail(Errc::internal, "other values");
        return ok;
    };
    CHECK(failures(on_fake(1, body, library, settings)) == "");
}

TEST_CASE("without codecs for the GPU compression is refused, and nothing is broken",
          "[nccl][compressed]") {
    const Library library = fake();
    const auto refusal = [&](const std::string& codecs) {
        Settings settings;
        settings.codecs = codecs;
        std::string told;
        const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
            const Numbers data(library, {1, 2, 3});
            const Segment segment{data.data(), data.data(), 3};
            const auto refused = group.allreduce_compressed({&segment, 1}, Reduce::sum, {}, 1);
            if (refused || refused.error().code != Errc::invalid_input)
                return fail(Errc::internal, "not refused: {}", outcome(refused));
            if (spec.rank == 0) told = refused.error().message;
            return sum(group, data);
        };
        CHECK(failures(on_fake(2, body, library, settings)) == "");
        return told;
    };
    CHECK(refusal("/nowhere/libcodec.so").starts_with("nccl: compressed allreduce: /nowhere/"));
    CHECK(refusal("libm.so.6") == "nccl: compressed allreduce: libm.so.6 has no codecs of dtrun");
    const Variable old_driver("FAKE_CODEC_ERROR", "35");
    CHECK(refusal(FAKE_NCCL) ==
          "nccl: compressed allreduce: the codecs do not run on this GPU: CUDA driver version is "
          "insufficient for CUDA runtime version");
}

TEST_CASE("where one rank has no codecs for its GPU, all refuse and name it",
          "[nccl][compressed]") {
    const Library library = fake();
    std::vector<std::string> told(3);
    MemoryStore store;
    const auto results = run_ranks(3, [&](std::uint32_t rank) -> Result<void> {
        Settings settings;
        settings.codecs = rank == 1 ? "/nowhere/libcodec.so" : FAKE_NCCL;
        auto group = NcclGroup::connect(library, thread_spec(rank, 3, store), settings);
        if (!group) return std::unexpected(group.error());
        const Numbers data(library, {1, 2, 3});
        const Segment segment{data.data(), data.data(), 3};
        for (int again = 0; again < 2; ++again) {
            const auto refused = (*group)->allreduce_compressed({&segment, 1}, Reduce::sum, {}, 1);
            if (refused || refused.error().code != Errc::invalid_input)
                return fail(Errc::internal, "not refused: {}", outcome(refused));
            told[rank] = refused.error().message;
        }
        return sum(**group, data);
    });
    CHECK(failures(results) == "");
    CHECK(told[1].starts_with("nccl: compressed allreduce: /nowhere/"));
    CHECK(told[0].starts_with("nccl: compressed allreduce: rank 1: /nowhere/"));
    CHECK(told[2] == told[0]);
}

TEST_CASE("without memory to compress in all ranks refuse, and do it once there is some",
          "[nccl][compressed]") {
    const Library library = fake();
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        const Numbers data(library, Values(200'000, 1));
        const Segment segment{data.data(), data.data(), data.count()};
        const auto reduce = [&] {
            return group.allreduce_compressed({&segment, 1}, Reduce::average, {}, 1);
        };
        if (auto ok = group.run(op::barrier()); !ok) return ok;
        if (spec.rank == 0) ::setenv("FAKE_GPU_MEMORY", "100000", 1);
        if (auto ok = group.run(op::barrier()); !ok) return ok;
        const auto refused = reduce();
        if (auto ok = group.run(op::barrier()); !ok) return ok;
        if (spec.rank == 0) ::unsetenv("FAKE_GPU_MEMORY");
        if (auto ok = group.run(op::barrier()); !ok) return ok;
        if (refused || refused.error().code != Errc::invalid_input ||
            refused.error().message.find("to compress in: out of memory") == std::string::npos)
            return fail(Errc::internal, "not refused: {}", outcome(refused));
        return reduce();
    };
    CHECK(failures(on_fake(2, body, library)) == "");
}

TEST_CASE("averages of halves are exact where NCCL's own are not", "[nccl][compressed]") {
    const Library library = fake();
    constexpr std::uint16_t kValue = 0x3fe0;  // 1.75 in bf16; three times that is exact
    const auto averages = [&](const std::string& codecs) {
        Settings settings;
        settings.codecs = codecs;
        std::vector<std::vector<std::uint16_t>> all(3);
        const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
            const DeviceMemory memory = device_memory(*library);
            void* const data = memory.allocate(3 * sizeof kValue);
            std::vector<std::uint16_t>& values = all[spec.rank];
            values.assign(3, kValue);
            memory.copy_in(data, values.data(), 3 * sizeof kValue);
            auto ok = group.run(op::allreduce(data, data, 3, DType::bf16, Reduce::average));
            const Array many{data, 3};
            if (ok) ok = group.allreduce_many({&many, 1}, DType::bf16, Reduce::average);
            memory.copy_out(values.data(), data, 3 * sizeof kValue);
            memory.release(data);
            return ok;
        };
        CHECK(failures(on_fake(3, body, library, settings)) == "");
        CHECK(all[1] == all[0]);
        CHECK(all[2] == all[0]);
        return all[0];
    };
    CHECK(averages(FAKE_NCCL) == std::vector<std::uint16_t>(3, kValue));
    CHECK(averages("/nowhere/libcodec.so") != std::vector<std::uint16_t>(3, kValue));
}

TEST_CASE("only sums and averages of the GPU's memory are compressed", "[nccl][compressed]") {
    const Library library = fake();
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        const Numbers data(library, {1, 2, 3});
        Values host(3);
        const auto refused = [&](const Segment& segment, Reduce reduce) {
            const auto result = group.allreduce_compressed({&segment, 1}, reduce, {}, 1);
            return result ? "not refused" : result.error().message;
        };
        const std::string max = refused({data.data(), data.data(), 3}, Reduce::max);
        if (max != "only sum and average can be compressed, not max")
            return fail(Errc::internal, "{}", max);
        for (const Segment& segment :
             {Segment{host.data(), host.data(), 3}, Segment{data.data(), host.data(), 3},
              Segment{data.data(), data.data(), 3, host.data()}})
            if (const std::string text = refused(segment, Reduce::sum);
                text.find("not in the GPU's memory") == std::string::npos)
                return fail(Errc::internal, "{}", text);
        return sum(group, data);
    };
    CHECK(failures(on_fake(2, body, library)) == "");
}

TEST_CASE("a lost peer ends the compressed allreduce of the others", "[nccl][compressed]") {
    const Library library = fake();
    const Variable die("FAKE_NCCL_DIE", "1:4");
    for (const bool blocking : {true, false}) {
        Settings settings = small_rounds();
        settings.blocking_operations = blocking;
        const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
            const Numbers data(library, Values(20'000, 1));
            const Segment segment{data.data(), data.data(), data.count()};
            Result<void> ok;
            for (int i = 0; i < 10 && ok; ++i)
                ok = group.allreduce_compressed({&segment, 1}, Reduce::sum, {}, 1);
            return ok;
        };
        const auto results = on_fake(3, body, library, settings);
        for (const std::uint32_t survivor : {0u, 2u}) {
            REQUIRE_FALSE(results[survivor].has_value());
            CHECK(results[survivor].error().code == Errc::closed);
            CHECK(results[survivor].error().message.starts_with("nccl: compressed allreduce: "));
        }
    }
}

}  // namespace dtrun::collectives::nccl
