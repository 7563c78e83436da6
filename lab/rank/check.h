#pragma once

#include "lab/rank/operation.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dtrun::lab::rank {

/// A measured operation on one rank: what it begins with and what has to come out, computed
/// without asking anybody.
///
/// Numbers look random and repeat every kPeriod elements. They are small integers whose sums are
/// exact in every type, so that results have to be equal to the bit; for compressed operations they
/// lie between -1 and 1.
class Check {
public:
    /// A prime: parts of the usual sizes that are mixed up do not look the same.
    static constexpr std::size_t kPeriod = 8'191;

    /// How far a result is from what it has to be.
    struct Verdict {
        std::uint64_t wrong = 0;   ///< elements that are further off than rounding explains
        double error_squared = 0;  ///< summed; rel_err is the root of their ratio
        double expected_squared = 0;
    };

    Check(Op op, DType type, std::optional<Format> format, std::uint32_t rank, std::uint32_t ranks)
        : op_(op), type_(type), format_(format), rank_(rank), ranks_(ranks) {}

    /// What this rank gives.
    void fill(const Extent& extent, std::span<std::byte> in) const;
    /// What is there before a result: nothing that could be taken for one.
    static void spoil(std::span<std::byte> out);
    /// \param out  extent.out elements; of a rank that gets nothing, anything
    Verdict compare(const Extent& extent, std::span<const std::byte> out) const;

private:
    /// Elements [first, first + count) of what a rank gives, kPeriod of them at most.
    std::vector<float> values(std::uint32_t rank, std::size_t first, std::size_t count) const;
    void compare_copy(const Extent& extent, std::span<const std::byte> out, Verdict& verdict) const;
    void compare_sum(const Extent& extent, std::span<const std::byte> out, Verdict& verdict) const;
    void compare_run(std::span<const float> expected, std::span<const float> tolerances,
                     std::span<const std::byte> out, Verdict& verdict) const;

    Op op_;
    DType type_;
    std::optional<Format> format_;
    std::uint32_t rank_, ranks_;
};

}  // namespace dtrun::lab::rank
