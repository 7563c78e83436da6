#pragma once

#include "base/result.h"

#include <string>
#include <vector>

namespace dtrun::doctor {

/// A library by which ranks talk to each other or start, as this machine has it.
struct BackendHere {
    std::string name;     ///< of `--backend`, or "pmix"
    std::string title;    ///< for people
    std::string version;  ///< of the library; empty: it is not here
    std::string plugin;   ///< the file of ours that uses it; empty: none is here, or none is needed
};

/// Asks the rank program of `dtrun bench`, which is linked with what knows them. Takes a second where libraries are
/// large. Errc: not_found (it is not here, as dtrun was installed without its collectives), internal, timed_out
Result<std::vector<BackendHere>> ask_backends();

/// Why a backend cannot be used here; empty: it can.
std::string why_not(const BackendHere& backend);

}  // namespace dtrun::doctor
