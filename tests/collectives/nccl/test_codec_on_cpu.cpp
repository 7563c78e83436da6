#include "collectives/codec/numbers.h"
#include "tests/collectives/nccl/codec_checks.h"
#include "tests/collectives/nccl/codec_on_cpu.h"
#include "tests/support/catch.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace dtrun::collectives {
namespace {

DeviceMemory host_memory() {
    return {[](std::size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); },
            [](void* data) { std::free(data); },
            [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); },
            [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }};
}

/// As quotient_of_largest() of codec_values.cuh.
float quotient(float value, float by) {
    const float inverse = 1.0F / by;
    const float near = value * inverse;
    return std::fmaf(std::fmaf(-by, near, value), inverse, near);
}

}  // namespace

TEST_CASE("the kernels for GPUs have the bits of the CPU's codecs, run thread by thread",
          "[nccl][codec]") {
    Verdict verdict;
    check_codecs(codecs_on_cpu(), host_memory(), 5'003, verdict);
    for (const std::string& text : verdict.texts()) UNSCOPED_INFO(text);
    CHECK(verdict.wrong() == 0);
    CHECK(verdict.checks() > 2'000);
}

TEST_CASE("a scale is a quotient, though the kernels do not divide", "[nccl][codec]") {
    std::uint32_t wrong = 0;
    for (const float by : {127.0F, 448.0F, 57'344.0F})
        // Every 1,009th float: the whole range takes half a minute, and was tried.
        for (std::uint32_t bits = 0; bits < kInfinityBits; bits += 1'009) {
            const float exact = float_of(bits) / by;
            if (bits_of(exact) >= kLeastScaleBits &&
                bits_of(quotient(float_of(bits), by)) != bits_of(exact))
                ++wrong;
            // Below that, both are replaced by the least scale.
            if (bits_of(exact) < kLeastScaleBits &&
                bits_of(quotient(float_of(bits), by)) >= kLeastScaleBits)
                ++wrong;
        }
    CHECK(wrong == 0);
}

}  // namespace dtrun::collectives
