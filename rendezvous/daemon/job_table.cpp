#include "rendezvous/daemon/job_table.h"

namespace dtrun {

ServedJob* JobTable::find(const JobId& id) {
    const auto found = jobs_.find(id);
    return found != jobs_.end() ? found->second.job.get() : nullptr;
}

ServedJob& JobTable::add(const JobId& id, std::unique_ptr<ServedJob> job) {
    ServedJob& added = *(jobs_[id].job = std::move(job));
    recount(id);
    return added;
}

void JobTable::erase(const JobId& id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return;
    count(id, found->second, 0, Deadline::max());
    history_bytes_ -= found->second.history_bytes;
    jobs_.erase(found);
}

void JobTable::recount(const JobId& id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return;
    Entry& entry = found->second;
    const std::uint64_t history_bytes = entry.job->history_bytes();
    history_bytes_ += history_bytes - std::exchange(entry.history_bytes, history_bytes);
    count(id, entry, entry.job->bytes(), entry.job->next_deadline());
}

void JobTable::count(const JobId& id, Entry& entry, std::uint64_t bytes, Deadline deadline) {
    bytes_ += bytes - std::exchange(entry.bytes, bytes);
    const Deadline before = std::exchange(entry.deadline, deadline);
    if (before == deadline) return;
    if (before != Deadline::max()) deadlines_.erase({before, id});
    if (deadline != Deadline::max()) deadlines_.emplace(deadline, id);
}

Deadline JobTable::next_deadline() const {
    return deadlines_.empty() ? Deadline::max() : deadlines_.begin()->first;
}

std::uint64_t JobTable::forget_histories() {
    if (history_bytes_ == 0) return 0;
    const std::uint64_t freed = history_bytes_;
    for (auto& [id, entry] : jobs_) {
        if (entry.history_bytes == 0) continue;
        entry.job->forget_history();
        recount(id);
    }
    return freed;
}

std::vector<JobId> JobTable::due(Deadline now) const {
    std::vector<JobId> due;
    for (const auto& [deadline, id] : deadlines_) {
        if (deadline > now) break;
        due.push_back(id);
    }
    return due;
}

}  // namespace dtrun
