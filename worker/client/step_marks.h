#pragma once

#include "base/fd.h"

#include <cstdint>
#include <string>

namespace dtrun::embedded {

/// The file of DTRUN_STEPS_FILE, into which a rank's steps are marked for who measures them (`dtrun bench`): a line
/// "progress STEP NANOSECONDS" of the monotonic clock for each. Any thread may mark.
class StepMarks {
public:
    /// \param path  empty: nobody measures. A file that cannot be opened is one, too
    explicit StepMarks(const std::string& path);
    void add(std::uint64_t step) const;

private:
    Fd file_;
};

}  // namespace dtrun::embedded
