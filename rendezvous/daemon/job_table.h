#pragma once

#include "base/clock.h"
#include "rendezvous/daemon/served_job.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace dtrun {

/// The jobs of a daemon, of which there may be a million that nobody uses. What is asked of all of them together at each
/// turn of the loop, their bytes and the next deadline, is counted again only for those to which something has happened.
class JobTable {
public:
    ServedJob* find(const JobId& id);
    /// \param job  of an id that has none
    ServedJob& add(const JobId& id, std::unique_ptr<ServedJob> job);
    void erase(const JobId& id);
    /// To be called when something has happened to the job.
    void recount(const JobId& id);

    bool empty() const { return jobs_.empty(); }
    /// Of all stores, with the answers that are kept.
    std::uint64_t bytes() const { return bytes_; }
    Deadline next_deadline() const;
    /// Lets go what jobs can do without, as last counted. \return how many bytes that were
    std::uint64_t forget_histories();
    /// Jobs whose deadline is over.
    std::vector<JobId> due(Deadline now) const;

    /// \param visit  void(ServedJob&), for each job, by id
    template <class Visit>
    void for_each(Visit visit) const {
        for (const auto& [id, entry] : jobs_) visit(*entry.job);
    }

private:
    struct Entry {
        std::unique_ptr<ServedJob> job;
        std::uint64_t bytes = 0, history_bytes = 0;  ///< as last counted
        Deadline deadline = Deadline::max();
    };
    void count(const JobId& id, Entry& entry, std::uint64_t bytes, Deadline deadline);

    std::map<JobId, Entry> jobs_;
    std::set<std::pair<Deadline, JobId>> deadlines_;  ///< but for those that have none
    std::uint64_t bytes_ = 0;
    std::uint64_t history_bytes_ = 0;
};

}  // namespace dtrun
