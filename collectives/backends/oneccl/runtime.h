#pragma once

#include "base/result.h"
#include "collectives/backends/oneccl/library.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace dtrun::collectives::oneccl {

/// oneCCL in this process: what all groups share.
///
/// Its operations advance only while a thread polls one of them, and then those of all groups do.
/// So only one thread at a time is inside. Once an operation, whose arrays may be gone, has been
/// given up, no thread may poll any more: oneCCL is over for this process.
class OnecclRuntime {
public:
    static OnecclRuntime& of_process();

    /// Keeps a library that was found. If there was none, each call looks again: a framework that
    /// is imported later may bring one.
    Result<std::shared_ptr<const Library>> library();

    /// Network interfaces for oneCCL's own settings, before it begins, if they are known.
    struct Network {
        std::string data;     ///< for messages; libfabric reads it once
        std::string meeting;  ///< where ranks meet
    };
    /// Sets oneCCL's environment variables. The user's own choices stay, but for
    /// CCL_WORKER_OFFLOAD.
    void prepare(const Library& library, const Network& network);
    /// "FI_TCP_IFACE=eth0 ..."
    std::string settings();

    /// The lock to hold while calling oneCCL. Errc: cancelled
    Result<std::unique_lock<std::timed_mutex>> turn();
    /// From now on turn() fails in all threads.
    void give_up() noexcept { over_ = true; }
    /// Also waits, but not for ever, until the thread that has the turn has left oneCCL.
    void give_up_and_wait();

private:
    std::mutex mutex_;
    std::shared_ptr<const Library> library_;
    std::optional<bool> meeting_is_ours_;  ///< CCL_KVS_IFACE
    std::timed_mutex turn_;
    std::atomic<bool> over_{false};
};

/// Turns exceptions of oneCCL into errors.
template <class Call>
Result<void> guarded(const char* what, Call call) {
    try {
        call();
        return {};
    } catch (const std::exception& error) {
        return fail(Errc::internal, "oneCCL: {}: {}", what, error.what());
    }
}

}  // namespace dtrun::collectives::oneccl
