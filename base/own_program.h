#pragma once

#include "base/result.h"

#include <string>

namespace dtrun {

/// The file that this process runs, without links. If another was put in its place since, as agents that are copied
/// to a host at once do with the same bytes, it is that one.
/// Errc: internal (/proc is not there)
Result<std::string> own_program();

}  // namespace dtrun
