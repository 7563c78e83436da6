#pragma once

#include "base/result.h"
#include "launcher/plan/log_options.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::output {

using plan::Rotation;

/// How far a file is.
struct Fill {
    std::uint64_t bytes = 0;
    bool in_line = false;  ///< its last line has no end yet

    void add(std::string_view written) {
        bytes += written.size();
        if (!written.empty()) in_line = !written.ends_with('\n');
    }
};

/// How much of `bytes` belongs into a file before it is set aside: whole lines, and the rest of one that it has
/// begun, for which it may become up to 1 MiB larger than `bytes_max`. A line longer than that is cut.
std::size_t part_that_fits(std::string_view bytes, const Fill& file, std::uint64_t bytes_max);

/// Sets a file aside. Errc: internal; names the path
/// \param folder  in which the path begins, or AT_FDCWD
Result<void> set_aside(int folder, const std::string& path, int keep);

/// Removes what was set aside of a file: it belongs to another job.
void remove_set_aside(int folder, const std::string& path);

}  // namespace dtrun::output
