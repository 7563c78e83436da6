#pragma once

#include "worker/mpi/pmix_messages.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace dtrun::mpi {

/// What programs publish for others to look up by name, in the job's store.
///
/// Thread: one.
class PmixNames {
public:
    /// \param send  takes an answer's frame; also from within a call
    using Send = std::function<void(Bytes frame)>;
    PmixNames(stores::JobStore& store, Send send) : queries_(store), send_(std::move(send)) {}

    void publish(const PmixPublish& request);
    void lookup(const PmixLookup& request);
    void unpublish(const PmixUnpublish& request);

private:
    /// A request, while some of its keys are without an answer.
    struct Job {
        Job(std::uint64_t id, std::size_t keys) : open(keys) { answer.id = id; }
        std::size_t open;
        PmixFound answer;
    };
    using JobPtr = std::shared_ptr<Job>;

    void look_up(const std::string& key, std::uint64_t timeout_ms, const JobPtr& job);
    void found(const std::string& key, const StoreReply& reply, Job& job);
    void end(const Job& job);

    stores::PendingQueries queries_;
    Send send_;
    std::map<std::uint32_t, std::set<std::string>> published_;  ///< by rank
};

}  // namespace dtrun::mpi
