#pragma once

#include "collectives/backends/oneccl/library.h"
#include "collectives/backends/oneccl/runtime.h"
#include "collectives/group.h"

#include <string>

namespace dtrun::collectives::oneccl {

/// What a rank tells rank 0 before it calls anything that blocks.
struct Standing {
    std::string version;  ///< "oneCCL 2021.16.2"
    std::string problem;  ///< why it cannot take part, or ""
};

std::string encode(const Standing& standing);
/// Errc: invalid_input
Result<Standing> decode_standing(std::string_view text);

struct Meeting {
    std::shared_ptr<Kvs> kvs;
    Comm comm;
};

/// Makes the communicator of a group: all ranks tell rank 0 whether they can take part, and rank 0
/// publishes where to meet, or why not.
/// Errc: timed_out (names who has not come), invalid_input (a rank has a problem, or another
/// version), closed, internal
Result<Meeting> bootstrap(Runtime& runtime, const std::shared_ptr<const Library>& library,
                          const GroupSpec& spec, const Standing& mine);

}  // namespace dtrun::collectives::oneccl
