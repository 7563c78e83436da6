#include "collectives/gloo/side_copy.h"

#include "collectives/quiet_thread.h"

#include <cstring>
#include <system_error>

namespace dtrun::collectives::over_gloo {
namespace {

/// Copying this much takes several times as long as making a thread.
constexpr std::size_t kAsideBytesMin = 4UL << 20;

}  // namespace

SideCopy::SideCopy(void* to, const void* from, std::size_t bytes) {
    if (to == from || bytes == 0) return;
    if (bytes >= kAsideBytesMin) {
        try {
            const NoSignals guard;
            thread_ = std::jthread([=] { std::memcpy(to, from, bytes); });
            return;
        } catch (const std::system_error&) {
            // There are no more threads to be had.
        }
    }
    std::memcpy(to, from, bytes);
}

}  // namespace dtrun::collectives::over_gloo
