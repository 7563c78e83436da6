#pragma once

#include "base/result.h"

#include <string>

namespace dtrun::plan {

/// A file that nobody has named, and that can have dtrun run what it says, as the configuration of a user or of a
/// directory: it is read only if it belongs to the user or to root, and nobody else may write to it (the group of
/// the user's own name, which some systems let write by default, is nobody else).
/// Errc: as read_file(); denied: somebody else may have written it
Result<std::string> read_obeyed_file(const std::string& path);

}  // namespace dtrun::plan
