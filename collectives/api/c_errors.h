#pragma once

#include "base/result.h"
#include "base/uncancelled.h"
#include "collectives/include/dtrun_collectives.h"

#include <exception>
#include <string_view>

namespace dtrun::collectives {

/// What becomes of errors at a C interface: a code, and a text that the thread keeps until its next error.
class ThreadError {
public:
    static int keep(int code, std::string_view text) noexcept;
    static const char* text() noexcept;
};

int code_of(Errc code);
/// The code of what was done; an error's text is kept.
int code_of(const Result<void>& done);

/// Runs the body of a function, Result<void>(); no exception leaves it.
template <class Body>
int guarded(Body body) noexcept {
    const Uncancelled uncancelled;
    try {
        return code_of(body());
    } catch (const std::exception& error) {
        return ThreadError::keep(DTRUN_INTERNAL, error.what());
    }
}

}  // namespace dtrun::collectives
