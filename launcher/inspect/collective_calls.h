#pragma once

#include "base/numbered.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

// Who is where, among ranks that should all be in the same operation. Pure.

namespace dtrun::inspect {

/// An operation of torch.distributed, Horovod, DeepSpeed or dtrun in which all ranks have to take part.
struct CollectiveCall {
    std::string name;    ///< "all_reduce"
    std::string caller;  ///< "train_step (train.py:41)"; empty: nobody outside of the library

    auto operator<=>(const CollectiveCall&) const = default;
};

/// The one in which a thread is. \param frames  of Python, as "function (file:line)", the innermost first
std::optional<CollectiveCall> collective_call(const std::vector<std::string>& frames);

/// Which ranks are in which operation, which are in none, and which have not said: lines for a person. None if no rank
/// is in one.
/// \param frames  by rank: of its first Python thread
/// \param silent  by rank: why nothing is known of it; empty where that is not known either
std::vector<std::string> who_takes_part(const std::map<Rank, std::vector<std::string>>& frames,
                                        const std::map<Rank, std::string>& silent = {});

}  // namespace dtrun::inspect
