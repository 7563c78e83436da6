#include "collectives/backends/backend_facts.h"
#include "collectives/backends/nccl/library.h"
#include "collectives/backends/shared_library.h"

namespace dtrun::collectives {

/// The version of the library that the backend would take; without a GPU, of the one that the
/// loader finds.
std::string nccl_library_version() {
    if (const auto library = nccl::NcclLibrary::open(
            {environment_text("DTRUN_NCCL_LIBRARY"), environment_text("DTRUN_CUDART_LIBRARY")}))
        return (*library)->rccl ? (*library)->name() : nccl::version_text((*library)->version);
    const auto ask =
        function_of<int(int*)>(open_any({"libnccl.so.2", "librccl.so.1"}), "ncclGetVersion");
    int version = 0;
    return ask && ask(&version) == 0 ? nccl::version_text(version) : "";
}

}  // namespace dtrun::collectives
