#pragma once

#include "base/result.h"
#include "collectives/group.h"
#include "collectives/types.h"

#include <cstddef>
#include <functional>
#include <vector>

namespace dtrun::collectives {

/// Where data of a group lie, if not in the host's memory.
struct DeviceMemory {
    std::function<void*(std::size_t bytes)> allocate;
    std::function<void(void* data)> release;
    std::function<void(void* device, const void* host, std::size_t bytes)> copy_in;
    std::function<void(void* host, const void* device, std::size_t bytes)> copy_out;
};

struct CheckOptions {
    std::vector<DType> types{DType::f32, DType::f64, DType::f16, DType::bf16,
                             DType::i8,  DType::u8,  DType::i32, DType::i64};
    std::vector<Reduce> reduces{Reduce::sum, Reduce::product, Reduce::min, Reduce::max,
                                Reduce::average};
    /// Elements of reductions, and bytes of everything else.
    std::vector<std::size_t> counts{0, 1, 1027};
    /// Of one call of each operation: more than any buffer inside a backend. 0: none
    std::size_t large_bytes = (5 << 20) + 12;
    /// Every type and reduction in place and out of place and with every root; else these take
    /// turns.
    bool thorough = false;
    bool messages = true;  ///< also start()
    bool nans = true;      ///< also min and max of numbers of which some are NaN
    /// Data lie where no element of this size could be, so that a backend that needs alignment is
    /// found out. 0: as malloc() aligns them. Host memory only.
    std::size_t misalign = 0;
    DeviceMemory memory{};
};

/// Does every operation of `group` with data that all ranks know, and compares what comes out. All
/// ranks call it, as threads or processes, with the same options.
///
/// A wrong result is reported once everything has been done, so that other ranks do not wait for
/// this one; an error of the group is reported at once, after abort().
/// \return the first thing that went wrong: "rank 1 of 4: allreduce f16 sum of 1027, in place:
///         element 17 is 3.5, not 4"
Result<void> check_group(Group& group, const GroupSpec& spec, const CheckOptions& options = {});

}  // namespace dtrun::collectives
