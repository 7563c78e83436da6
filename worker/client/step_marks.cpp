#include "worker/client/step_marks.h"

#include "base/clock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace dtrun::embedded {

StepMarks::StepMarks(const std::string& path) {
    if (!path.empty()) file_ = Fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
}

void StepMarks::add(std::uint64_t step) const {
    if (!file_) return;
    // One write() of a file that is appended to stays whole beside those of other processes.
    const std::string line =
        fmt::format("progress {} {}\n", step, Clock::now().time_since_epoch().count());
    static_cast<void>(::write(file_.get(), line.data(), line.size()));
}

}  // namespace dtrun::embedded
