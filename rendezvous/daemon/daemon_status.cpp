// What a daemon tells of itself, to `dtrun status` and Prometheus.

#include "rendezvous/daemon/daemon.h"
#include "rendezvous/wire/request.h"

#include <dtrun_version.h>
#include <unistd.h>
#include <boost/json.hpp>
#include <chrono>
#include <utility>

namespace dtrun {
namespace {

constexpr std::pair<Op, const char*> kOperations[] = {
#define DTRUN_OPERATION(name, number, function, effect, arguments) {Op::name, #name},
#include "rendezvous/wire/operations.def"
};

std::int64_t whole_seconds(auto span) {
    return std::chrono::duration_cast<std::chrono::seconds>(span).count();
}

/// "buckets" are pairs of a bound in seconds and how often it took at most so long.
boost::json::object describe(const Durations& durations) {
    boost::json::array buckets;
    std::uint64_t count = 0;
    for (std::size_t bound = 0; bound < Durations::kBounds_s.size(); ++bound) {
        count += durations.count(bound);
        buckets.push_back(boost::json::array{Durations::kBounds_s[bound], count});
    }
    count += durations.count(Durations::kBounds_s.size());
    return {{"count", count}, {"sum_s", durations.sum_s()}, {"buckets", std::move(buckets)}};
}

}  // namespace

void Daemon::count_request(std::string_view payload) {
    ++requests_;
    if (const auto request = decode_request(payload))
        ++operations_[static_cast<std::size_t>(request->header.op)];
}

std::string Daemon::status(const std::string& job_name) const {
    boost::json::object status;
    status["version"] = DTRUN_VERSION;
    status["pid"] = ::getpid();
    status["uptime_s"] = whole_seconds(Clock::now() - started_);
    if (options_.keep_unused) status["keep_unused_s"] = whole_seconds(*options_.keep_unused);
    std::size_t unsent = 0, members = 0;
    for (const auto& [id, peer] : peers_) {
        unsent += peer->held_bytes + peer->link.queued_bytes();
        members += peer->is_member ? 1 : 0;
    }
    status["connections"] = peers_.size();
    status["members"] = members;
    status["clients"] = peers_.size() - members;
    status["requests"] = requests_;
    boost::json::object operations;
    for (const auto& [op, name] : kOperations)
        if (const std::uint64_t count = operations_[static_cast<std::size_t>(op)]; count > 0)
            operations[name] = count;
    status["operations"] = std::move(operations);
    status["received_bytes"] = received_bytes_;
    status["sent_bytes"] = sent_bytes_;
    status["unsent_bytes"] = unsent;
    if (db_) {
        status["commits"] = describe(db_->commits());
        status["fsyncs"] = describe(db_->fsyncs());
        status["writing_s"] = std::chrono::duration<double>(db_->writing_for()).count();
    }
    boost::json::array jobs;
    const Deadline now = Clock::now();
    jobs_.for_each([&](const ServedJob& job) {
        if (!job.name().empty() && (job_name.empty() || job.name() == job_name))
            jobs.push_back(job.describe(now));
    });
    status["jobs"] = std::move(jobs);
    return boost::json::serialize(status);
}

}  // namespace dtrun
