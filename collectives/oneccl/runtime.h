#pragma once

#include "base/result.h"
#include "collectives/oneccl/library.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace dtrun::collectives::oneccl {

/// oneCCL in this process: what all groups share.
///
/// Its operations advance only while somebody asks about one of them, and then all of them do,
/// those of other groups too. So one thread at a time is inside; and once an operation has been
/// given up, whose arrays may be gone, nobody may ask any more: oneCCL is over for this process.
class Runtime {
public:
    static Runtime& of_process();

    /// Looked for once; what was not there may come, with a framework that is imported later.
    Result<std::shared_ptr<const Library>> library();

    /// Network interfaces for oneCCL's own settings, before it begins, if they are known.
    struct Network {
        std::string data;     ///< for messages; libfabric reads it once
        std::string meeting;  ///< where ranks meet
    };
    /// Sets what is not the user's own choice in the environment, where oneCCL looks for it.
    void prepare(const Library& library, const Network& network);
    /// "FI_TCP_IFACE=eth0 ..."
    std::string settings();

    /// Held while calling oneCCL. Errc: cancelled
    Result<std::unique_lock<std::timed_mutex>> turn();
    /// From now on there are no turns, for anybody.
    void give_up() noexcept { over_ = true; }
    /// And whoever has one has ended it, so that nothing is worked on any more.
    void give_up_and_wait();

private:
    std::mutex mutex_;
    std::shared_ptr<const Library> library_;
    std::optional<bool> meeting_is_ours_;  ///< CCL_KVS_IFACE
    std::timed_mutex turn_;
    std::atomic<bool> over_{false};
};

/// What calls of oneCCL throw, as a value.
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
