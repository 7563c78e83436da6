#pragma once

#include <string>

namespace dtrun::lab::rank {

/// What ranks of this host have to talk to each other by, for `dtrun info` and `dtrun --check-build`: a line
/// "NAME TITLE VERSION PLUGIN" for each backend, with tabs between, and then one of libpmix, by which Open MPI starts.
/// VERSION is that of its library, empty: it is not here; PLUGIN the file of ours that uses it, empty: there is none,
/// or none is needed.
std::string backends_text();

}  // namespace dtrun::lab::rank
