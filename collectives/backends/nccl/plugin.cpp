#include "collectives/backends/plugin.h"
#include "collectives/backends/nccl/group.h"
#include "collectives/backends/shared_library.h"

#include <mutex>

namespace dtrun::collectives::nccl {
namespace {

/// Keeps a library that was found. If there was none, each call looks again: a framework that is
/// imported later may bring one.
Result<std::shared_ptr<const NcclLibrary>> library() {
    static std::mutex mutex;
    static std::shared_ptr<const NcclLibrary> found;
    const std::lock_guard lock(mutex);
    if (found != nullptr) return found;
    auto opened = NcclLibrary::open(
        {environment_text("DTRUN_NCCL_LIBRARY"), environment_text("DTRUN_CUDART_LIBRARY")});
    if (opened) found = *opened;
    return opened;
}

Availability probe() {
    const auto opened = library();
    if (!opened) return {false, opened.error().message};
    const auto count = (*opened)->device_count();
    if (!count) return {false, fmt::format("{}, but {}", (*opened)->name(), count.error().message)};
    return {true, fmt::format("{}, {} GPU{}", (*opened)->name(), *count, *count == 1 ? "" : "s")};
}

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) {
    const auto opened = library();
    if (!opened) return std::unexpected(opened.error());
    const auto settings = settings_from(environment_text, (*opened)->nccl.comm_split != nullptr);
    if (!settings) {
        report_failure(spec, settings.error());
        return std::unexpected(settings.error());
    }
    return NcclGroup::connect(*opened, spec, *settings);
}

}  // namespace
}  // namespace dtrun::collectives::nccl

DTRUN_BACKEND_PLUGIN("nccl", dtrun::collectives::nccl::probe, dtrun::collectives::nccl::connect)
