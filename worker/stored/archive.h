#pragma once

#include "base/result.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::agent {

/// A file of an archive.
struct ArchivedFile {
    std::string name;  ///< relative, without ".."
    std::string bytes;
};

/// What a .tar.gz holds: plain files whose names have at most 100 bytes; folders are left out.
/// \param bytes_max  of all of it, unpacked
/// Errc: invalid_input (damaged, too large, or with entries of another kind)
Result<std::vector<ArchivedFile>> read_archive(std::string_view archive, std::size_t bytes_max);

}  // namespace dtrun::agent
