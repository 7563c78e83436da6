#pragma once
// Private to this folder: what the readers of allocations share.

#include "base/strings.h"
#include "hostfiles/allocation.h"
#include "hostfiles/host_merger.h"
#include "hostfiles/scan.h"

#include <initializer_list>
#include <string>
#include <string_view>

namespace dtrun {

/// An environment variable with a non-empty value.
struct SchedulerVariable {
    std::string name;
    std::string_view text;

    Position position() const { return {name}; }
    std::string shown() const { return fmt::format("{}={}", name, escaped(text)); }
};

/// The first of `names` that is set.
std::optional<SchedulerVariable> find_variable(const AllocationInput& input,
                                               std::initializer_list<std::string_view> names);

/// Its value as a whole number from min to max. Errc: invalid_input
Result<long long> number_of(const SchedulerVariable& variable, long long min, long long max);

/// Sets the slots of `hosts` (at least one) to `ranks` in blocks of equal size, or one more for the
/// first hosts. Errc: invalid_input (more than kSlotsMax on a host)
Result<void> spread_evenly(HostList& hosts, int ranks, const Position& position);

/// Completes a reader's allocation: fills nodes, and world_size with all slots, where it has not.
Result<Allocation> finished(Allocation allocation, const Position& position);

// Each reads one scheduler's job, or finds nothing. Errc: as find_allocation()
using FoundAllocation = Result<std::optional<Allocation>>;
#define DTRUN_SCHEDULER(name, shown, files, more) \
    FoundAllocation find_##name(const AllocationInput& input);
#include "hostfiles/schedulers.def"

}  // namespace dtrun
