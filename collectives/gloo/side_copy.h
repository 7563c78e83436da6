#pragma once

#include <cstddef>
#include <thread>

namespace dtrun::collectives::over_gloo {

/// Copies this rank's own part while others are on their way: at once if it is small, else in a
/// thread, for which the destructor waits. Nothing is copied onto itself.
class SideCopy {
public:
    SideCopy(void* to, const void* from, std::size_t bytes);
    SideCopy(const SideCopy&) = delete;
    SideCopy& operator=(const SideCopy&) = delete;

private:
    std::jthread thread_;
};

}  // namespace dtrun::collectives::over_gloo
