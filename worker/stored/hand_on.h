#pragma once

#include "base/fd.h"

#include <string>

namespace dtrun::agent {

/// Hands a file on to hosts of the same job that lack it (docs/decisions/041-handed-on.md): says at which port on standard
/// output, "dtrun-agent-hands-on PORT", and starts a process that serves it there until this one ends, or until nobody has
/// asked for a minute. Says nothing if it cannot.
/// \param word  what a connection has to say first, with a line end behind; no secret
/// \param file  open for reading; is closed here
void start_handing_on(const std::string& word, Fd file);

}  // namespace dtrun::agent
