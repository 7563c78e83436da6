#pragma once

#include "base/result.h"

#include <sys/types.h>
#include <filesystem>

namespace dtrun {

/// Whether code in a file that nobody has named may run for `user`: the file, and all folders that lead to it, belong
/// to them or to root, and nobody else may write there. The user's own group may, if nobody else is in it, and of
/// folders above that of the code, those that all may write to will do if they are sticky, as /tmp is.
/// \param path  absolute
/// \return the same without links, which is what was checked
/// Errc: not_found; denied, with what to do
Result<std::filesystem::path> check_code(const std::filesystem::path& path, uid_t user);

}  // namespace dtrun
