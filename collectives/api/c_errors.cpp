#include "collectives/api/c_errors.h"

#include <algorithm>
#include <cstring>

namespace dtrun::collectives {
namespace {

thread_local char kept[2'048];

}  // namespace

int ThreadError::keep(int code, std::string_view text) noexcept {
    const std::size_t size = std::min(text.size(), sizeof kept - 1);
    std::memcpy(kept, text.data(), size);
    kept[size] = '\0';
    return code;
}

const char* ThreadError::text() noexcept {
    return kept;
}

int code_of(Errc code) {
    switch (code) {
        case Errc::invalid_input:
            return DTRUN_INVALID;
        case Errc::not_found:
            return DTRUN_NOT_FOUND;
        case Errc::timed_out:
            return DTRUN_TIMED_OUT;
        case Errc::denied:
            return DTRUN_REFUSED;
        case Errc::closed:
        case Errc::unreachable:
            return DTRUN_PEER_LOST;
        case Errc::cancelled:
            return DTRUN_CANCELLED;
        case Errc::internal:
            break;
    }
    return DTRUN_INTERNAL;
}

int code_of(const Result<void>& done) {
    return done ? DTRUN_OK : ThreadError::keep(code_of(done.error().code), done.error().message);
}

}  // namespace dtrun::collectives
