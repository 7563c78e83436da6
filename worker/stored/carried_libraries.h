#pragma once

#include "contracts/variables.h"

#include <string>

namespace dtrun::agent {

/// Whether a program is itself linked with libdtrun.so.0 or libdtrun_collectives.so.0, and its loader finds one of
/// them nowhere on this host. Only then the carried ones are offered: what is installed, or lies where the program's
/// rpath says, wins. The loader is asked, for a millisecond, if the program is linked with them at all; one that does
/// not answer is taken to find none, and one of another C library than the carried ones all.
/// \param program  absolute, or relative to `directory`
/// \param env      of its ranks
bool lacks_carried_library(const std::string& program, const std::string& directory,
                           const contracts::Environment& env);

/// Makes ranks find the libraries of the package: behind what LD_LIBRARY_PATH says.
void add_to_library_path(const std::string& package, contracts::Environment& env);

}  // namespace dtrun::agent
