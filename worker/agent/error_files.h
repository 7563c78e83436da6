#pragma once

#include "base/fd.h"

#include <cstdint>
#include <map>
#include <string>

namespace dtrun::agent {

/// Where ranks may leave the exception that ended them, as torch's @record does in the file that
/// TORCHELASTIC_ERROR_FILE names (torch/distributed/elastic/multiprocessing/errors). They are in our
/// memory, under names in /proc, so nothing of them outlives us.
class ErrorFiles {
public:
    static constexpr std::size_t kBytesMax = 1u << 20;  ///< of which somebody hears

    /// A new file for a rank. \return its path; empty if there can be none
    std::string open(std::uint32_t rank);
    /// What it has left, and no more after that.
    std::string take(std::uint32_t rank);

private:
    std::map<std::uint32_t, Fd> files_;
};

}  // namespace dtrun::agent
