#pragma once

#include <cstdint>
#include <string>

namespace dtrun::plan {

/// --color: whether what stands before lines has the colour of its rank.
enum class Color { on_terminals, always, never };

/// When a file that grows is set aside as FILE.1 and begun anew, and FILE.1 as FILE.2, and so on.
struct Rotation {
    std::uint64_t bytes_max = 0;  ///< --log-max: of one file; 0: it grows without end
    int keep = 5;                 ///< --log-keep: how many are kept besides the one that is written
};

}  // namespace dtrun::plan
