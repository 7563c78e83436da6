#pragma once

#include "collectives/key_store.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct dtrun_worker;

namespace dtrun::collectives {

/// A membership for this library's own calls and threads: a handle of its own on a worker.
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

/// What the last failed call of libdtrun in this thread has to say, as a value.
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

    /// Once `*cancelled` is true, get() ends within a second, and find() fails. nullptr: they do not;
    /// the default. Thread: while nobody is in either
    void cancel_by(std::shared_ptr<const std::atomic<bool>> cancelled) {
        cancelled_ = std::move(cancelled);
    }
    /// Erases what has been set through this object until joined(), which all others have read, and
    /// what is own().
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
