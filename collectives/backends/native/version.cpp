#include "collectives/backends/backend_facts.h"

#include <dtrun_version.h>

namespace dtrun::collectives {

std::string dtrun_library_version() {
    return DTRUN_VERSION;
}

}  // namespace dtrun::collectives
