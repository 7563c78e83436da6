#include "launcher/head/job_policy.h"

#include "hostfiles/host.h"

#include <algorithm>

namespace dtrun::head {
namespace {

std::uint32_t count(int number) {
    return static_cast<std::uint32_t>(number);
}

std::optional<std::uint32_t> count(std::optional<int> number) {
    return number ? std::optional(count(*number)) : std::nullopt;
}

/// What the flags of both kinds of job ask.
JobPolicy common_policy(const plan::ElasticOptions& asked) {
    JobPolicy policy;
    policy.elastic = true;
    for (const int size : asked.allowed) policy.sizes.allowed.push_back(count(size));
    policy.sizes.per_host = count(asked.ranks_per_host);
    policy.timeout = asked.timeout;
    policy.refill = asked.refill;
    policy.resets_max = count(asked.reset_limit);
    policy.failures_max = count(asked.failure_limit);
    policy.rank_failures_max = count(asked.rank_failure_limit);
    policy.spares = count(asked.spares);
    policy.warn_time = asked.warn_time;
    policy.warn_signal = asked.warn_signal;
    policy.cooldown_min = asked.cooldown_min;
    policy.cooldown_max = asked.cooldown_max;
    return policy;
}

}  // namespace

JobPolicy elastic_policy(const plan::Options& options) {
    const plan::ElasticOptions& asked = *options.elastic;
    JobPolicy policy = common_policy(asked);
    const int ranks_min = asked.ranks_min.value_or(1);
    policy.ranks_min = count(ranks_min);
    policy.ranks_start = count(std::max(ranks_min, options.world_size.value_or(ranks_min)));
    policy.sizes.max = count(asked.ranks_max.value_or(kRanksMax));
    policy.hosts_may_come = !asked.discovery_script.empty();
    return policy;
}

JobPolicy joined_policy(const plan::Options& options) {
    const plan::JoinOptions& join = *options.join;
    JobPolicy policy = common_policy(join.limits);
    policy.ranks_min = policy.ranks_start = count(join.ranks_min.value_or(0));
    policy.sizes.max = count(join.ranks_max.value_or(0));
    policy.elastic = join.ranks_max && join.ranks_max != join.ranks_min;
    policy.start_timeout = options.start_timeout.value_or(std::chrono::seconds(600));
    policy.last_call = join.last_call;
    return policy;
}

}  // namespace dtrun::head
