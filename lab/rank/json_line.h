#pragma once

#include "base/json_writer.h"

namespace dtrun::collectives::bench {

/// A line of a rank, which `dtrun bench` reads: `json_line("row").add("bytes", 4).text()`.
inline JsonWriter json_line(std::string_view type) {
    constexpr int kDigits = 7;  // more than a measurement has
    JsonWriter line(kDigits);
    line.add("type", type);
    return line;
}

}  // namespace dtrun::collectives::bench
