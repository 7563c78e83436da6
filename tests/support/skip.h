#pragma once

#include "tests/support/catch.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace dtrun {

/// Whether this runs in CI (CI is set, but not to "", "0" or "false"), where no dependency may be
/// missing.
inline bool in_ci() {
    const char* const set = std::getenv("CI");
    const std::string_view value = set != nullptr ? set : "";
    return !value.empty() && value != "0" && value != "false";
}

/// Reports that a test case lacks a dependency, or fails it in CI; the case then returns.
inline void skip_case(const std::string& why) {
    if (in_ci())
        FAIL("CI allows no skipping: " << why);
    else
        WARN("SKIPPED: " << why);
}

/// Ends a test program that lacks a dependency, with CTest's status for skipped; in CI it throws,
/// which fails the test.
[[noreturn]] inline void skip_program(const std::string& why) {
    constexpr int kSkipped = 77;
    if (in_ci()) throw std::runtime_error("CI allows no skipping: " + why);
    std::printf("SKIPPED: %s\n", why.c_str());
    std::fflush(nullptr);
    std::_Exit(kSkipped);
}

}  // namespace dtrun
