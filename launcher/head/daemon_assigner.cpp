#include "launcher/head/daemon_assigner.h"

#include "base/ids.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/milliseconds.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/rank_messages.h"

#include <algorithm>
#include <csignal>

namespace dtrun::head {
namespace {

/// How much later than the heartbeat timeout the news of a host's loss may arrive here.
constexpr std::chrono::milliseconds kNewsLimit{1'500};

/// How long nodes wait for the one that serves their job: torch's join_timeout.
constexpr std::chrono::seconds kMeetingLimit{600};

constexpr HostId kOwnHost{0};  // the only one of this launcher's job

std::string end_text(const Exited& exited) {
    return exited.signal != 0
               ? fmt::format("rank {} was ended by signal {}", exited.rank, exited.signal)
               : fmt::format("rank {} exited with code {}", exited.rank, exited.code);
}

std::string cause_text(const JobOutcome& outcome) {
    switch (outcome.cause) {
        case JobOutcome::Cause::rank_failed:
            return end_text(*outcome.first);
        case JobOutcome::Cause::host_lost:
            return "its agent was lost: " + outcome.lost_text;
        case JobOutcome::Cause::interrupted:
            return fmt::format("ended by signal {}", outcome.signal);
        default:
            return "its ranks could not be started";
    }
}

}  // namespace

DaemonAssigner::DaemonAssigner(JobContext context, Outbox& outbox)
    : context_(std::move(context)), relay_(outbox), tasks_(context_.executor) {
    relay_.set_resendable();
    context_.agents.on<Paused>(this, &DaemonAssigner::paused);
}

void DaemonAssigner::to_root(FrameType type, std::string_view payload) {
    if (uplink_) uplink_->send(type, payload);
}

void DaemonAssigner::entered(HostId, Member member) {
    member_ = std::move(member);
}

/// Enters the daemon's job with the host's slots, now that the agent is ready.
void DaemonAssigner::begin() {
    context_.started();
    const plan::JobSpec& spec = context_.spec;
    const plan::Options& options = spec.options;
    const plan::JoinOptions& join = *options.join;
    Enter enter;
    enter.member = MemberId{random_id()};
    enter.job_name = spec.daemon->job;
    enter.name = host_name();
    enter.slots = static_cast<std::uint32_t>(spec.placement.world_size());
    enter.ranks_min = static_cast<std::uint32_t>(join.ranks_min.value_or(0));
    enter.ranks_max = static_cast<std::uint32_t>(join.ranks_max.value_or(0));
    if (options.start_timeout) enter.join_timeout_ms = to_ms(*options.start_timeout);
    enter.last_call_ms = to_ms(join.last_call);
    const auto number = [](std::optional<int> given) {
        return given ? static_cast<std::uint32_t>(*given) : Enter::kAny;
    };
    for (const int size : join.limits.allowed)
        enter.allowed.push_back(static_cast<std::uint32_t>(size));
    enter.elastic_timeout_ms = to_ms(join.limits.timeout);
    enter.resets_max = number(join.limits.reset_limit);
    enter.restarts_max = number(join.limits.rank_failure_limit);
    enter.node_rank = number(join.node_rank);
    enter.free_port = member_.free_port;
    enter.addresses = member_.addresses;
    enter.return_ms = to_ms(join.server_timeout);
    UplinkOptions uplink{options.connect_timeout, options.heartbeat_timeout, join.server_timeout};
    if (join.by_hand) uplink.first_limit = options.start_timeout.value_or(kMeetingLimit);
    uplink_ = std::make_unique<Uplink>(context_.executor, *spec.daemon, uplink,
                                       static_cast<UplinkEvents&>(*this));
    tasks_.spawn(uplink_->run(std::move(enter)));
    log::info("waits for the other ranks of job {} at {}", spec.daemon->job, spec.daemon->text);
}

void DaemonAssigner::daemon_assigned(const Assign& assign) {
    if (context_.job.ending()) return;
    generation_ = assign.generation;
    failed_.reset();
    const Rank first = assign.ranks.empty() ? Rank{} : assign.ranks.front().rank;
    const Rank last = assign.ranks.empty() ? Rank{} : assign.ranks.back().rank;
    const auto ranks = static_cast<std::uint32_t>(assign.ranks.size());
    tell(fmt::format("generation {}: ranks {} to {} of {}", assign.generation, first, last,
                     assign.world_size));
    std::vector<Rank> numbers(context_.spec.placement.ranks.size(), kNoRank);
    for (std::size_t place = 0; place < std::min(numbers.size(), assign.ranks.size()); ++place)
        numbers[place] = assign.ranks[place].rank;
    context_.hosts.set_numbers(plan::RankNumbers(std::move(numbers)));
    context_.output.renumber();
    context_.waits.begin(assign.world_size);
    context_.job.begin(PerHost<std::uint32_t>{ranks});
    relay_.begin(assign.generation, ranks);
    Assign own = assign;
    for (std::uint32_t place = 0; place < own.ranks.size(); ++place)
        own.ranks[place].place = SlotIndex{place};
    context_.hosts.send(kOwnHost, encode(own));
    context_.input.start();
}

void DaemonAssigner::daemon_proposed(const Propose& propose) {
    if (context_.job.ending()) return;
    context_.job.pausing();
    proposed_ = propose.generation;
    tell(fmt::format("generation {} is coming: {}", propose.generation, propose.why));
    context_.input.pause();
    const std::chrono::milliseconds grace = context_.spec.options.grace;
    context_.answers.pause(propose.generation, grace, Clock::now());
    context_.hosts.send(kOwnHost,
                        encode(Pause{propose.generation, SIGTERM, to_ms(grace), propose.why}));
}

void DaemonAssigner::paused(HostId host, const Paused& paused) {
    context_.answers.paused(host, paused.generation);
    if (uplink_ && paused.generation == proposed_) uplink_->accept(paused.generation);
}

void DaemonAssigner::daemon_stopped(const Stop& stop) {
    // Our rank is the cause, and not one that failed because another had.
    if (failed_ && stop.why == fmt::format("{}: {}", host_name(), failed_->why))
        context_.job.rank_exited(kOwnHost, failed_->exited);
    context_.job.ended_elsewhere(stop.why.empty(), stop.why);
    context_.decide();
}

Result<void> DaemonAssigner::daemon_exchanged(const FrameView& frame) {
    return relay_.from_root(frame);
}

void DaemonAssigner::daemon_is_back() {
    was_there_ = true;
    relay_.resend();
    if (failed_) tell_failed();
}

bool DaemonAssigner::is_full() const {
    return uplink_ && uplink_->is_full();
}

asio::awaitable<void> DaemonAssigner::room() {
    if (uplink_) co_await uplink_->room();
}

Heartbeat DaemonAssigner::progress() {
    return relay_.summary();
}

void DaemonAssigner::daemon_lost(const Error& why) {
    const bool refused = why.code == Errc::denied;
    const bool by_hand = context_.spec.options.join->by_hand;  // of which the user knows no daemon
    if (was_there_)
        context_.job.ended_elsewhere(false, why.message);
    else
        context_.job.no_daemon(
            refused, why.message + (refused || by_hand ? "" : "; is `dtrun serve` running there?"));
    context_.decide();
}

/// In a job that can go on without some hosts, ranks whose peers are gone fail before the daemon
/// knows of the loss: such a failure counts only if no new generation follows.
bool DaemonAssigner::hold_back(HostId host, const Exited& exited) {
    if (!uplink_ || exited.sent_signal != 0 || (exited.code == 0 && exited.signal == 0))
        return false;
    const plan::JoinOptions& join = *context_.spec.options.join;
    if (join.limits.rank_failure_limit) {
        if (failed_ || proposed_ > generation_) return true;
        failed_ = Failed{exited, end_text(exited)};
        tell_failed();
        return true;
    }
    if (!join.ranks_max || join.ranks_max == join.ranks_min) return false;
    tasks_.spawn(believe_later(host, exited));
    return true;
}

/// A change of the members, which in a job whose nodes meet by themselves no daemon's log tells.
void DaemonAssigner::tell(const std::string& news) {
    if (context_.spec.options.join->by_hand && (generation_ > 1 || proposed_ > 1))
        log::warn("{}", news);
    else
        log::info("{}", news);
}

/// The daemon decides what follows, as it knows whether a host is lost.
void DaemonAssigner::tell_failed() {
    uplink_->send(FrameType::rank_failed,
                  payload_of(encode(RankFailed{generation_, failed_->why})));
}

asio::awaitable<void> DaemonAssigner::believe_later(HostId host, Exited exited) {
    const std::uint64_t generation = generation_;
    Timer timer(context_.executor, context_.spec.options.heartbeat_timeout + kNewsLimit);
    co_await timer.async_wait(use_tuple);
    if (generation != generation_ || proposed_ > generation_) co_return;
    context_.job.rank_exited(host, exited);
    context_.decide();
}

void DaemonAssigner::ending() {
    if (uplink_) tasks_.spawn(leave());
}

void DaemonAssigner::hurry() {
    if (uplink_) uplink_->stop_waiting();
}

asio::awaitable<void> DaemonAssigner::leave() {
    if (!uplink_) co_return;
    const JobOutcome& outcome = context_.job.outcome();
    const bool finished = outcome.cause == JobOutcome::Cause::success;
    const std::string why = finished ? std::string() : cause_text(outcome);
    co_await uplink_->leave(finished, why);
}

asio::awaitable<void> DaemonAssigner::join() {
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::head
