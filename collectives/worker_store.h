#pragma once

#include "collectives/key_store.h"

#include <cstdint>

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

private:
    Result<void> still_there() const;

    dtrun_worker* worker_;
    std::uint64_t generation_;
};

}  // namespace dtrun::collectives
