#include "collectives/backends/backend_facts.h"

namespace dtrun::collectives {

std::string library_version(std::string_view backend) {
#define DTRUN_BACKEND(name, ...) \
    if (backend == #name) return name##_library_version();
#include "collectives/backends/backends.def"
#undef DTRUN_BACKEND
    return {};
}

}  // namespace dtrun::collectives
