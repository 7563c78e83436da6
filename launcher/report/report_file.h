#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <string>
#include <string_view>

namespace dtrun::report {

/// A file that is written once, and is there whole or not at all: whoever looks before finds what was there.
///
/// Thread: any, one at a time.
class ReportFile {
public:
    /// Tries whether it can be written, and leaves nothing. Its folder is held from then on, wherever the caller goes.
    /// \param word  of which there is one at a time, for the name under which it is written
    /// Errc: invalid_input (another name would do), internal; the message names the path
    static Result<ReportFile> open(const std::string& path, const std::string& word);

    /// Errc: internal; the message names the path
    Result<void> write(std::string_view text) const;

private:
    ReportFile() = default;
    Result<Fd> make() const;
    std::unexpected<Error> failed(int error) const;

    std::string path_;  ///< for messages
    Fd folder_;
    std::string name_;    ///< there
    std::string coming_;  ///< its name until it is whole
};

}  // namespace dtrun::report
