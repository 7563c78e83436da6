#pragma once

// Words that `dtrun bench` is given, that it hands to its ranks, and that reports have: operations,
// types, compressions and algorithms, with the bounds of numbers. Formats and backends are
// tables of collectives (formats.def, backends.def); what is here of them is made from those.

#include "base/result.h"
#include "collectives/codec/format.h"
#include "collectives/operation.h"
#include "collectives/types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

using collectives::DType;
using collectives::Format;

/// Operations of a communicator. Reductions are sums, roots are rank 0.
enum class CollectiveOp : std::uint8_t {
#define DTRUN_OPERATION(kind, ...) kind,
#include "collectives/operations.def"
#undef DTRUN_OPERATION
    sendrecv,  ///< every rank sends to the next and receives from the one before it
};
/// Those that are measured: all but allgatherv, whose parts have no size in common.
const std::vector<CollectiveOp>& measured_ops();
/// Its shape: the row of operations.def, or one like it.
const collectives::OperationRow& row_of(CollectiveOp op);
std::string_view name_of(CollectiveOp op);
/// '-' and '_' are the same. Errc: invalid_input
Result<CollectiveOp> parse_op(std::string_view name);

/// Errc: invalid_input
Result<DType> parse_dtype(std::string_view name);

/// How an allreduce is compressed: a format, or "none".
std::string_view name_of(const std::optional<Format>& compression);
/// Errc: invalid_input
Result<std::optional<Format>> parse_compression(std::string_view name);

/// How gradients travel in training.
struct Algorithm {
    std::string name;  ///< as it was given
    bool serial = false;
    std::optional<Format> format;
    bool feedback = false;  ///< error feedback: a step's rounding errors are added in the next
    bool stochastic = false;
};
/// "serial", "parallel", or a compression: "fp16", "int8", "fp8-e4m3-unscaled", ... Formats with a
/// scale have error feedback; behind any of them "-ef" and "-noef" ask for it or not, and
/// "-stochastic" for random rounding. Errc: invalid_input
Result<Algorithm> parse_algorithm(std::string_view name);

// All names, in the order in which help and reports have them.
const std::vector<std::string>& operation_names();
const std::vector<std::string>& type_names();
const std::vector<std::string>& compression_names();  ///< "none", and the formats
const std::vector<std::string>& backend_names();
const std::vector<std::string>& scaling_names();

// Bounds of numbers, all of them allowed.
inline constexpr std::uint64_t kBytesMax = 1ull << 40;  ///< of an array
inline constexpr int kIterationsMax = 1'000'000;
inline constexpr int kEpochsMax = 100'000;
inline constexpr int kGlobalBatchMax = 1'000'000;
inline constexpr int kSeedMax = 1'000'000;
inline constexpr int kSeedsMax = 1'000;
inline constexpr double kLossScaleMin = 1e-6;
inline constexpr double kLossScaleMax = 1e6;

}  // namespace dtrun::lab
