#pragma once

#include "base/result.h"

#include <string>

namespace dtrun {

/// The file that this process runs, without links. If another was put in its place since, as agents that are copied
/// to a host at once do with the same bytes, it is that one.
/// Errc: internal (/proc is not there)
Result<std::string> own_program();

/// A program of ours that comes with this one: beside it, as it is built, or in ../libexec/dtrun, as it is installed.
/// Errc: not_found (the message has both places), internal
Result<std::string> program_beside(const std::string& name);

}  // namespace dtrun
