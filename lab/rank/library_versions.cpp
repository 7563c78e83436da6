#include "collectives/backends/backend_facts.h"
#include "collectives/backends/shared_library.h"
#include "lab/rank/host_facts.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::lab::rank {

namespace {

using collectives::function_of;
using collectives::open_any;

std::string cuda_version() {
    void* const runtime =
        open_any({"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"});
    auto ask = function_of<int(int*)>(runtime, "cudaRuntimeGetVersion");
    if (!ask) ask = function_of<int(int*)>(open_any({"libcuda.so.1"}), "cuDriverGetVersion");
    int version = 0;  // 13000 is 13.0
    if (!ask || ask(&version) != 0) return {};
    return fmt::format("{}.{}", version / 1'000, version % 1'000 / 10);
}

/// "4.2.2" of "OpenPMIx 4.2.2, repo rev: v4.2.2 (PMIx Standard: 4.1, ...)".
std::string pmix_version() {
    auto ask = function_of<const char*()>(open_any({"libpmix.so.2"}), "PMIx_Get_version");
    if (!ask) return {};
    const std::string_view said = ask();
    const std::size_t begin = std::min(said.find_first_of("0123456789"), said.size());
    return std::string(said.substr(begin, said.find_first_not_of("0123456789.", begin) - begin));
}

}  // namespace

std::string version_of(std::string_view name) {
    if (name == "pmix") return pmix_version();
    return name == "cuda" ? cuda_version() : collectives::library_version(name);
}

}  // namespace dtrun::lab::rank
