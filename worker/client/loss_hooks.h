#pragma once

#include "base/fd.h"
#include "base/threads.h"
#include "worker/client/change_view.h"
#include "worker/client/connect/outcome.h"

#include <cstdint>
#include <functional>
#include <map>

namespace dtrun::embedded {

/// Functions of the program that are called when a rank of its generation is lost, so that threads of it do
/// not wait for that rank: by a thread of our own, which is there from the first of them, and only where an
/// agent tells of changes through a board.
///
/// Thread: any.
class LossHooks {
public:
    /// \param generation  that this process is in
    LossHooks(const ChangeView& changes, std::function<std::uint64_t()> generation)
        : changes_(changes), generation_(std::move(generation)) {}
    ~LossHooks();

    /// \param lost  called once for each generation that ends so; at once if this one has
    /// \return its number. Failures: internal
    Outcome<std::uint64_t> add(std::function<void()> lost);
    /// It is not called any more, and is not being called, when this returns. Not to be called by itself.
    void remove(std::uint64_t id);

private:
    struct Hook {
        std::function<void()> lost;
        std::uint64_t told = 0;  ///< the last generation of whose end it was told
    };
    using Lock = std::unique_lock<Mutex>;

    void run();
    void call(Lock& lock);

    const ChangeView& changes_;
    const std::function<std::uint64_t()> generation_;
    Mutex mutex_;  ///< guards all below; not held while a hook runs
    ConditionVariable returned_;
    std::map<std::uint64_t, Hook> hooks_;
    std::uint64_t last_id_ = 0;
    std::uint64_t running_ = 0;  ///< that is being called; 0: none
    bool stopping_ = false;
    Fd wake_;  ///< eventfd
    Thread thread_;
};

}  // namespace dtrun::embedded
