#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/look_messages.h"

#include <functional>
#include <string>
#include <vector>

namespace dtrun::head {

/// Stacks for a person: processes of which one tool says the same are one block, under the ranks that are
/// there, the largest block first. Python comes before native code, ranks before what they have started.
/// \param host_of    the name of a rank's host
/// \param lines_max  what is more is left out, and counted
/// \return lines without '\n'
std::vector<std::string> stacks_text(const std::vector<ProcessStacks>& processes,
                                     const std::function<std::string(Rank)>& host_of,
                                     std::size_t lines_max);

}  // namespace dtrun::head
