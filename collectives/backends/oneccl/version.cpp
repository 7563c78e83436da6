#include "collectives/backends/backend_facts.h"
#include "collectives/backends/oneccl/library.h"
#include "collectives/backends/shared_library.h"

namespace dtrun::collectives {

std::string oneccl_library_version() {
    const auto library = oneccl::Library::open(environment_text("DTRUN_ONECCL_LIBRARY"));
    return library ? (*library)->name() : "";
}

}  // namespace dtrun::collectives
