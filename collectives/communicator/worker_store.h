#pragma once

#include "collectives/key_store.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct dtrun_worker;

namespace dtrun::collectives {

/// This library's own handle on a worker, for its calls and threads.
class SharedWorker {
public:
    static Result<SharedWorker> of(dtrun_worker* worker);
    SharedWorker(SharedWorker&& other) noexcept;
    SharedWorker& operator=(SharedWorker&& other) noexcept;
    ~SharedWorker();
    dtrun_worker* get() const { return worker_; }

private:
    explicit SharedWorker(dtrun_worker* worker) : worker_(worker) {}
    dtrun_worker* worker_;
};

/// Has a function called when a rank of the worker's generation is lost, as long as this object lives.
class LossHook {
public:
    /// \param worker  outlives it
    LossHook(dtrun_worker* worker, std::function<void()> lost);
    ~LossHook();
    LossHook(const LossHook&) = delete;
    LossHook& operator=(const LossHook&) = delete;

private:
    dtrun_worker* worker_;
    std::function<void()> lost_;
    std::uint64_t id_ = 0;  ///< 0: nobody will call it
};

/// The error of this thread's last failed libdtrun call.
std::unexpected<Error> worker_error(int code);

/// The store of the job's present membership, through a worker that outlives this object. Once that
/// membership is over everything is Errc::closed.
class WorkerStore final : public KeyStore {
public:
    explicit WorkerStore(dtrun_worker* worker);

    Result<void> set(std::span<const Pair> pairs) override;
    Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                         std::chrono::milliseconds timeout) override;
    Result<std::optional<std::string>> find(const std::string& key) override;

    /// Once `*cancelled` is true, get() ends within a second and find() fails; nullptr, the
    /// default, disables that. Thread: only while neither function runs.
    void cancel_by(std::shared_ptr<const std::atomic<bool>> cancelled) {
        cancelled_ = std::move(cancelled);
    }
    /// Erases the keys that were set through this object before joined(), which all other ranks
    /// have read, and the keys of own().
    void erase_own();
    void own(std::vector<std::string> keys);
    void joined() { joined_ = true; }

private:
    Result<void> still_there() const;

    dtrun_worker* worker_;
    std::uint64_t generation_;
    std::shared_ptr<const std::atomic<bool>> cancelled_;
    std::atomic<bool> joined_ = false;
    std::mutex mutex_;
    std::vector<std::string> own_keys_;
};

}  // namespace dtrun::collectives
