#include "collectives/backends/oneccl/runtime.h"

#include "base/environment.h"

#include <chrono>
#include <cstdlib>

namespace dtrun::collectives::oneccl {
namespace {

/// A turn takes that long only where a communicator is being made.
constexpr std::chrono::seconds kTurnEndsWithin{10};

}  // namespace

OnecclRuntime& OnecclRuntime::of_process() {
    static OnecclRuntime* const runtime =
        new OnecclRuntime;  // as long as the process: threads may be inside
    return *runtime;
}

Result<std::shared_ptr<const Library>> OnecclRuntime::library() {
    const std::lock_guard lock(mutex_);
    if (library_ != nullptr) return library_;
    const char* const given = std::getenv("DTRUN_ONECCL_LIBRARY");
    auto opened = Library::open(given == nullptr ? "" : given);
    if (opened) library_ = *opened;
    return opened;
}

void OnecclRuntime::prepare(const Library& library, const Network& network) {
    const std::lock_guard lock(mutex_);
    // The waiting thread does the work: no thread of oneCCL touches arrays, or takes a processor.
    set_variable("CCL_WORKER_OFFLOAD", "0", IfSet::replace);
    // By default oneCCL would begin MPI.
    set_variable("CCL_ATL_TRANSPORT", "ofi", IfSet::keep);
    // oneCCL warns of each setting that is not the default.
    set_variable("CCL_LOG_LEVEL", "error", IfSet::keep);
    if (!library.libfabric.empty())
        set_variable("CCL_OFI_LIBRARY_PATH", library.libfabric, IfSet::keep);
    if (!network.data.empty()) set_variable("FI_TCP_IFACE", network.data, IfSet::keep);
    if (!meeting_is_ours_) meeting_is_ours_ = std::getenv("CCL_KVS_IFACE") == nullptr;
    if (!*meeting_is_ours_) return;
    if (network.meeting.empty())
        unset_variable("CCL_KVS_IFACE");
    else
        set_variable("CCL_KVS_IFACE", network.meeting, IfSet::replace);
}

std::string OnecclRuntime::settings() {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const char* const name :
         {"CCL_ATL_TRANSPORT", "FI_PROVIDER", "FI_TCP_IFACE", "CCL_KVS_IFACE"})
        if (const char* const value = std::getenv(name))
            all += fmt::format("{}{}={}", all.empty() ? "" : " ", name, value);
    return all;
}

Result<std::unique_lock<std::timed_mutex>> OnecclRuntime::turn() {
    std::unique_lock lock(turn_, std::try_to_lock);
    while (!lock.owns_lock() && !over_)
        static_cast<void>(lock.try_lock_for(std::chrono::milliseconds(100)));
    if (over_)
        return fail(
            Errc::cancelled,
            "oneCCL was interrupted in this process, and cannot be used again in it: use the "
            "backend gloo");
    return lock;
}

void OnecclRuntime::give_up_and_wait() {
    give_up();
    const std::unique_lock turn(turn_, kTurnEndsWithin);
}

}  // namespace dtrun::collectives::oneccl
