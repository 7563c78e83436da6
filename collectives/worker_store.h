#pragma once

#include "collectives/key_store.h"

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

/// The store of the job, through a worker that outlives this object.
class WorkerStore final : public KeyStore {
public:
    explicit WorkerStore(dtrun_worker* worker) : worker_(worker) {}

    Result<void> set(std::span<const Pair> pairs) override;
    Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                         std::chrono::milliseconds timeout) override;
    Result<std::optional<std::string>> find(const std::string& key) override;

private:
    dtrun_worker* worker_;
};

}  // namespace dtrun::collectives
