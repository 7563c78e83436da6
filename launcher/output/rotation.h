#pragma once

#include "base/result.h"
#include "launcher/plan/log_options.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::output {

using plan::Rotation;

/// How much of `bytes` belongs into a file that has `room` left: up to the end of a line where there is one, and
/// all if it fits.
/// \param fresh  nothing is in that file, so that a line longer than it has to be cut
std::size_t part_that_fits(std::string_view bytes, std::uint64_t room, bool fresh);

/// Sets a file aside. Errc: internal; names the path
Result<void> set_aside(const std::string& path, int keep);

/// Removes what was set aside of a file: it belongs to another job.
void remove_set_aside(const std::string& path);

}  // namespace dtrun::output
