#pragma once

#include "base/result.h"
#include "worker/include/dtrun.h"

#include <expected>
#include <string>
#include <utility>

namespace dtrun::embedded {

/// Why a call of the C interface fails.
struct Failure {
    dtrun_code code{};
    std::string text;  ///< for dtrun_error_text()
};

template <class T>
using Outcome = std::expected<T, Failure>;

template <class... A>
[[nodiscard]] std::unexpected<Failure> failure(dtrun_code code, fmt::format_string<A...> text,
                                               A&&... args) {
    return std::unexpected(Failure{code, fmt::format(text, std::forward<A>(args)...)});
}

}  // namespace dtrun::embedded
