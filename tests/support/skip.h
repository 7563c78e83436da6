#pragma once

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace dtrun {

/// Whether CI runs this (CI is set to anything but "", "0" or "false"), where nothing may be missing.
inline bool in_ci() {
    const char* const set = std::getenv("CI");
    const std::string_view value = set != nullptr ? set : "";
    return !value.empty() && value != "0" && value != "false";
}

/// For a test case that lacks something and is to return: says so, or fails it in CI.
inline void skip_case(const std::string& why) {
    if (in_ci())
        FAIL("CI allows no skipping: " << why);
    else
        WARN("SKIPPED: " << why);
}

/// Ends a test program that lacks something, with the status that CTest knows as skipped; in CI it throws,
/// which fails the test.
[[noreturn]] inline void skip_program(const std::string& why) {
    constexpr int kSkipped = 77;
    if (in_ci()) throw std::runtime_error("CI allows no skipping: " + why);
    std::printf("SKIPPED: %s\n", why.c_str());
    std::fflush(nullptr);
    std::_Exit(kSkipped);
}

}  // namespace dtrun
