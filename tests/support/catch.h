#pragma once

// Catch2 as a distribution has it: 2.13 in one header, or 3, which has many, and its matchers elsewhere.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#include <string>

namespace Catch {

using Matchers::EndsWith;
using Matchers::Equals;
using Matchers::Matches;
using Matchers::StartsWith;

/// Matches what has `part` in it.
inline Matchers::StringContainsMatcher Contains(const std::string& part) {
    return Matchers::ContainsSubstring(part);
}

}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif
