// The head of `dtrun join`: one host whose ranks belong to a daemon's job.

#include "base/interfaces.h"
#include "base/log.h"
#include "base/milliseconds.h"
#include "launcher/head/head.h"
#include "rendezvous/pulse.h"

#include <algorithm>
#include <csignal>

namespace dtrun::head {
namespace {

/// How much longer than a host's silence its loss may take to be known here.
constexpr std::chrono::milliseconds kNewsLimit{1'500};

MemberId random_member_id() {
    std::array<std::uint8_t, 8> bytes{};
    random_bytes(bytes);
    MemberId id = 0;
    for (const std::uint8_t byte : bytes) id = id << 8 | byte;
    return std::max<MemberId>(id, 1);
}

std::string cause_text(const Outcome& outcome) {
    switch (outcome.cause) {
        case Outcome::Cause::rank_failed:
            return outcome.first->signal != 0
                       ? fmt::format("rank {} was ended by signal {}",
                                     outcome.first_rank + outcome.first->rank,
                                     outcome.first->signal)
                       : fmt::format("rank {} exited with code {}",
                                     outcome.first_rank + outcome.first->rank, outcome.first->code);
        case Outcome::Cause::host_lost:
            return "its agent was lost: " + outcome.lost_text;
        case Outcome::Cause::interrupted:
            return fmt::format("ended by signal {}", outcome.signal);
        default:
            return "its ranks could not be started";
    }
}

}  // namespace

/// The agent is ready: its slots take part.
void Head::join_daemon() {
    starting_ = false;
    progress_->finish();
    const plan::Options& options = spec_.options;
    const plan::JoinOptions& join = *options.join;
    Enter enter;
    enter.member = random_member_id();
    enter.job_name = spec_.daemon->job;
    enter.name = host_name();
    enter.slots = static_cast<std::uint32_t>(spec_.placement.world_size());
    enter.ranks_min = static_cast<std::uint32_t>(join.ranks_min.value_or(0));
    enter.ranks_max = static_cast<std::uint32_t>(join.ranks_max.value_or(0));
    if (options.start_timeout) enter.join_timeout_ms = to_ms(*options.start_timeout);
    enter.last_call_ms = to_ms(join.last_call);
    enter.free_port = local_join_.free_port;
    enter.addresses = local_join_.addresses;
    enter.return_ms = to_ms(join.server_timeout);
    const UplinkOptions uplink{options.connect_timeout, options.heartbeat_timeout,
                               join.server_timeout};
    uplink_ = std::make_unique<Uplink>(io_.get_executor(), *spec_.daemon, uplink,
                                       static_cast<UplinkEvents&>(*this));
    tasks_.spawn(uplink_->run(std::move(enter)));
    log::info("waits for the other ranks of job {} at {}", spec_.daemon->job, spec_.daemon->text);
}

void Head::daemon_assigned(const Assign& assign) {
    if (job_.ending()) return;
    generation_ = assign.generation;
    first_rank_ = assign.ranks.empty() ? 0 : assign.ranks.front().rank;
    const auto ranks = static_cast<std::uint32_t>(assign.ranks.size());
    log::info("generation {}: ranks {} to {} of {}", assign.generation, first_rank_,
              first_rank_ + ranks - 1, assign.world_size);
    output_->set_first_rank(static_cast<int>(first_rank_));
    job_.generation_began(ranks, first_rank_);
    relay_->begin(assign.generation, ranks);
    this->assign(0, assign);
    stdin_->start();
}

void Head::daemon_proposed(const Propose& propose) {
    if (job_.ending()) return;
    log::info("generation {} is coming: {}", propose.generation, propose.why);
    job_.pausing();
    proposed_ = propose.generation;
    stdin_->pause();
    answers_.pause(propose.generation, spec_.options.grace, Clock::now());
    send(0, encode(Pause{propose.generation, SIGTERM, to_ms(spec_.options.grace), propose.why}));
}

void Head::daemon_stopped(const Stop& stop) {
    job_.ended_elsewhere(stop.why.empty(), stop.why);
    step();
}

Result<void> Head::daemon_exchanged(const FrameView& frame) {
    return relay_->from_root(frame);
}

void Head::daemon_is_back() {
    relay_->resend();
}

bool Head::is_full() const {
    return uplink_ && uplink_->is_full();
}

asio::awaitable<void> Head::room() {
    if (uplink_) co_await uplink_->room();
}

Heartbeat Head::progress() {
    return relay_->summary();
}

void Head::daemon_lost(const Error& why) {
    job_.ended_elsewhere(false, why.message);
    step();
}

/// In a job that can go on without some hosts, ranks fail because their peers are gone, sooner than
/// the daemon can know of it.
bool Head::may_be_collateral(const Exited& exited) const {
    if (!uplink_ || exited.sent_signal != 0 || (exited.code == 0 && exited.signal == 0))
        return false;
    const plan::JoinOptions& join = *spec_.options.join;
    return join.ranks_max && join.ranks_max != join.ranks_min;
}

asio::awaitable<void> Head::believe_later(std::uint32_t host, Exited exited) {
    const std::uint64_t generation = generation_;
    asio::steady_timer timer(io_, spec_.options.heartbeat_timeout + kNewsLimit);
    co_await timer.async_wait(use_tuple);
    if (generation != generation_ || proposed_ > generation_) co_return;
    job_.rank_exited(host, exited);
    step();
}

asio::awaitable<void> Head::leave_daemon() {
    const Outcome& outcome = job_.outcome();
    const bool finished = outcome.cause == Outcome::Cause::success;
    const std::string why = finished ? std::string() : cause_text(outcome);
    co_await uplink_->leave(finished, why);
}

}  // namespace dtrun::head
