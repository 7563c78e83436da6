#pragma once

#include "lab/rank/operation.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dtrun::lab::rank {

/// Input and expected result of a measured operation on one rank, computed without communication.
///
/// Numbers look random and repeat every kPeriod elements. They are small integers whose sums are
/// exact in every type, so that results have to be equal to the bit; for compressed operations they
/// lie between -1 and 1.
class Check {
public:
    /// A prime, so that parts of the usual sizes differ if they are mixed up.
    static constexpr std::size_t kPeriod = 8'191;

    /// How far a result is from what it has to be.
    struct Verdict {
        std::uint64_t wrong = 0;   ///< elements that are further off than rounding explains
        double error_squared = 0;  ///< summed; rel_err is the root of their ratio
        double expected_squared = 0;
    };

    Check(CollectiveOp op, DType type, std::optional<Format> format, std::uint32_t rank,
          std::uint32_t ranks)
        : op_(op), type_(type), format_(format), rank_(rank), ranks_(ranks) {}

    /// Fills this rank's input.
    void fill(const Extent& extent, std::span<std::byte> in) const;
    /// Fills the place of a result with bytes that cannot be taken for one.
    static void spoil(std::span<std::byte> out);
    /// \param out  extent.out elements; ignored on a rank that gets no result
    Verdict compare(const Extent& extent, std::span<const std::byte> out) const;

private:
    /// Elements [first, first + count) of what a rank gives, kPeriod of them at most.
    std::vector<float> values(std::uint32_t rank, std::size_t first, std::size_t count) const;
    void compare_copy(const Extent& extent, std::span<const std::byte> out, Verdict& verdict) const;
    void compare_sum(const Extent& extent, std::span<const std::byte> out, Verdict& verdict) const;
    void compare_run(std::span<const float> expected, std::span<const float> tolerances,
                     std::span<const std::byte> out, Verdict& verdict) const;

    CollectiveOp op_;
    DType type_;
    std::optional<Format> format_;
    std::uint32_t rank_, ranks_;
};

}  // namespace dtrun::lab::rank
