#pragma once

#include "base/result.h"
#include "collectives/types.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::collectives {

/// Values are those of dtrun_operation in <dtrun_coordinator.h>.
enum class RequestKind : std::uint8_t {
    allreduce = 0,
    allgather = 1,
    broadcast = 2,
    alltoall = 3,
    reduce_scatter = 4,
    barrier = 5,
    join = 6,
};
inline constexpr std::size_t kRequestKinds = 7;
std::string_view name_of(RequestKind operation);

/// Whether the length of a tensor's first dimension is each rank's own affair.
constexpr bool has_own_rows(RequestKind operation) {
    return operation == RequestKind::allgather || operation == RequestKind::alltoall;
}

constexpr bool is_reduction(RequestKind operation) {
    return operation == RequestKind::allreduce || operation == RequestKind::reduce_scatter;
}

struct TensorSpec {
    DType type = DType::f32;
    std::vector<std::int64_t> shape;

    /// Elements of one row: of all dimensions but the first.
    std::size_t row_elements() const;
    std::size_t elements() const;
    bool operator==(const TensorSpec&) const = default;
};

/// What a rank asks for under a name, as far as all ranks have to agree about it.
struct Request {
    /// Stands in a shape for the number of rows if each rank has its own.
    static constexpr std::int64_t kOwnRows = -1;

    std::string name;
    RequestKind operation = RequestKind::allreduce;
    Reduce reduce = Reduce::sum;
    std::uint32_t root = 0;
    double prescale = 1;
    double postscale = 1;
    int format = 0;  ///< dtrun_format
    bool stochastic = false;
    std::vector<TensorSpec> tensors;  ///< several: they are reduced together, or not at all

    bool operator==(const Request&) const = default;
};

/// The bytes that a rank sends of a request that others have not seen yet.
std::string encode(const Request& request);
/// \return invalid_input for bytes that encode() does not make
Result<Request> decode_request(std::string_view bytes);

/// "allreduce (sum) of f32 [17, 17]", for messages.
std::string describe(const Request& request);
/// What two ranks that use one name disagree about, with both wishes; "" if they agree.
std::string difference(const Request& one, std::uint32_t rank, const Request& other,
                       std::uint32_t other_rank);

}  // namespace dtrun::collectives
