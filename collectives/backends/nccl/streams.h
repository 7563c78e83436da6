#pragma once

#include "base/result.h"
#include "collectives/backends/nccl/library.h"

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace dtrun::collectives::nccl {

/// What calls of this thread need while it lives: the group's GPU is the current one, and asking
/// streams how far they are does not end a graph that another thread is capturing.
class GpuScope {
public:
    GpuScope(const GpuFunctions& gpu, int device);
    ~GpuScope();
    GpuScope(const GpuScope&) = delete;
    GpuScope& operator=(const GpuScope&) = delete;

private:
    const GpuFunctions& gpu_;
    int before_ = 0;
    bool changed_ = false;
    int capture_mode_ = kCaptureModeRelaxed;  ///< and later the one to go back to
};

/// Forgets "not ready", which the caller's next look for errors would take for a failure. An error
/// that the caller has not looked at yet stays.
void forget_not_ready(const GpuFunctions& gpu);

/// Events that are used again, as making one takes longer than recording it.
///
/// Thread: any.
class SpareEvents {
public:
    explicit SpareEvents(std::shared_ptr<const NcclLibrary> library)
        : library_(std::move(library)) {}
    ~SpareEvents();
    SpareEvents(const SpareEvents&) = delete;
    SpareEvents& operator=(const SpareEvents&) = delete;

    /// An event of the current GPU; \return what the runtime has returned
    int take(GpuEvent*& event);
    void give_back(GpuEvent* event);

private:
    std::shared_ptr<const NcclLibrary> library_;
    std::mutex mutex_;
    std::vector<GpuEvent*> spare_;
};

/// A point in what a caller has given a stream.
struct Mark {
    Mark() = default;
    ~Mark() {
        if (event != nullptr) events->give_back(event);
    }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

    GpuEvent* event = nullptr;  ///< nullptr: the GPU had done all of it already
    std::shared_ptr<SpareEvents> events;
    std::optional<Error> error;  ///< why the point cannot be waited for
};

/// Sets marks in streams of callers.
///
/// Thread: any, also while others use the group.
class Marks {
public:
    Marks(std::shared_ptr<const NcclLibrary> library, int device)
        : library_(std::move(library)),
          device_(device),
          events_(std::make_shared<SpareEvents>(library_)) {}

    /// \param stream  a cudaStream_t; nullptr: the legacy default stream
    std::shared_ptr<Mark> set(GpuStream* stream);

private:
    Result<void> check_not_captured(GpuStream* stream) const;

    const std::shared_ptr<const NcclLibrary> library_;
    const int device_;
    const std::shared_ptr<SpareEvents> events_;
};

}  // namespace dtrun::collectives::nccl
