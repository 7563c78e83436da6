#pragma once
// What the parsers of launcher/ promise for any input; a broken promise ends the fuzz target.

#include "base/result.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace dtrun {

inline void require(bool kept, const char* promise) {
    if (kept) return;
    std::fprintf(stderr, "broken promise: %s\n", promise);
    std::abort();
}

/// The user's mistake, in "<name>:<line>:<column>: ...".
inline void require_placed(const Error& error, std::string_view name) {
    require(error.code == Errc::invalid_input, "a mistake in a file is invalid input");
    const std::string start = std::string(name) + ":";
    require(error.message.starts_with(start), "the message begins with the file");
    const std::size_t line = start.size();
    const std::size_t column = error.message.find(':', line) + 1;
    require(std::atoi(error.message.c_str() + line) > 0, "lines count from 1");
    require(std::atoi(error.message.c_str() + column) > 0, "columns count from 1");
}

}  // namespace dtrun
