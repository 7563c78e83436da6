#include "launcher/head/daemon_assigner.h"

#include "base/ids.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/milliseconds.h"
#include "launcher/head/agent_session.h"
#include "launcher/head/job_policy.h"
#include "rendezvous/job/rank_end.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/rank_messages.h"

#include <utility>

namespace dtrun::head {
namespace {

/// How long nodes wait for the one that serves their job: torch's join_timeout.
constexpr std::chrono::seconds kMeetingLimit{600};

constexpr HostId kOwnHost{0};  // the only one of this launcher's job

std::string cause_text(const report::JobOutcome& outcome) {
    switch (outcome.cause) {
        case Job::Cause::rank_failed:
            return end_text(*outcome.first);
        case Job::Cause::host_lost:
            return "its agent was lost: " + outcome.lost_text;
        case Job::Cause::success:
            return "its ranks have ended";
        case Job::Cause::interrupted:
            return fmt::format("ended by signal {}", outcome.signal);
        default:
            return "its ranks could not be started";
    }
}

}  // namespace

DaemonAssigner::DaemonAssigner(JobContext context)
    : context_(std::move(context)),
      news_(*context_.spec.daemon, context_.spec.options.join->by_hand),
      tasks_(context_.executor) {
    context_.agents.on<Heard>(
        [this](HostId, const Heard& heard) { agent_knows_ = heard.number == connections_; });
    context_.agents.on<ResetStatus>([this](HostId host, const ResetStatus& news) {
        connections_reset(context_.hosts.name(host), news);
    });
    context_.agents.on<Paused>(this, &DaemonAssigner::paused);
    for (const FrameType type : {FrameType::rejoin_status, FrameType::ready_to_commit})
        context_.agents.on(type, [this, type](HostId, std::string_view payload) -> Result<void> {
            if (daemon_link_) daemon_link_->say(whole_frame(type, payload));
            return {};
        });
    orders_.on<Assign>(this, &DaemonAssigner::begin_generation);
    orders_.on<Pause>(this, &DaemonAssigner::pause);
    for (const FrameType type : {FrameType::prepare, FrameType::notify, FrameType::query_commit,
                                 FrameType::end_ranks, FrameType::reset_connections})
        orders_.on(type, [this, type](std::string_view payload) -> Result<void> {
            context_.hosts.send(kOwnHost, whole_frame(type, payload));
            return {};
        });
}

/// What is not passed on the agent says again once it knows that the daemon is there.
Result<void> DaemonAssigner::exchange(PeerId, const FrameView& frame) {
    if (frame.type == FrameType::heartbeat) {
        const auto heartbeat = decode<Heartbeat>(frame.payload);
        if (!heartbeat) return std::unexpected(heartbeat.error());
        progress_ = *heartbeat;
    } else if (agent_knows_) {
        daemon_link_->send(frame.type, frame.payload);
    }
    return {};
}

void DaemonAssigner::signalled(int signal) {
    if (daemon_link_)
        daemon_link_->send(FrameType::signal, payload_of(encode(SignalRanks{signal})));
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
    id_ = MemberId{random_id()};
    Enter enter;
    enter.member = id_;
    enter.job_name = spec.daemon->job;
    enter.name = host_name();
    enter.slots = static_cast<std::uint32_t>(spec.placement.world_size());
    enter.policy = joined_policy(options);
    if (join.node_rank) enter.node_rank = static_cast<std::uint32_t>(*join.node_rank);
    enter.free_port = member_.free_port;
    enter.addresses = member_.addresses;
    enter.return_ms = to_ms(join.server_timeout);
    DaemonLinkOptions link_options{options.connect_timeout, options.heartbeat_timeout,
                                   join.server_timeout, options.connect_timeout, join.by_hand};
    if (join.by_hand) link_options.first_limit = options.start_timeout.value_or(kMeetingLimit);
    daemon_link_ = std::make_unique<DaemonLink>(context_.executor, *spec.daemon, link_options,
                                                static_cast<DaemonLinkEvents&>(*this));
    tasks_.spawn(daemon_link_->run(std::move(enter)));
    log::info("waits for the other ranks of job {} at {}", spec.daemon->job, spec.daemon->text);
}

void DaemonAssigner::begin_generation(const Assign& assign) {
    if (context_.job.ending()) return;
    failed_.reset();
    news_.begins(static_cast<std::uint32_t>(assign.ranks.size()));
    if (const auto text = news_.look(Clock::now())) log::warn("{}", *text);
    const Rank first = assign.ranks.empty() ? Rank{} : assign.ranks.front().rank;
    const Rank last = assign.ranks.empty() ? Rank{} : assign.ranks.back().rank;
    const auto ranks = static_cast<std::uint32_t>(assign.ranks.size());
    tell(assign.generation,
         fmt::format("has ranks {} to {} of {}", first, last, assign.world_size));
    std::vector<Rank> numbers(context_.spec.placement.ranks.size(), kNoRank);
    for (const RankSlot& slot : assign.ranks)
        if (const auto place = std::to_underlying(slot.place); place < numbers.size())
            numbers[place] = slot.rank;
    context_.hosts.set_numbers(plan::RankNumbers(std::move(numbers)));
    if (assign.kept.empty()) context_.hosts[kOwnHost].ranks.clear();
    context_.output.renumber();
    context_.deadlocks.begin(assign.world_size);
    context_.job.begin(PerHost<std::uint32_t>{ranks});
    progress_ = {};
    context_.hosts.send(kOwnHost, encode(assign));
    context_.input.start();
}

void DaemonAssigner::pause(Pause pause) {
    if (context_.job.ending()) return;
    context_.job.pausing();
    news_.pauses();
    tell(pause.generation, "is coming: " + pause.why);
    context_.input.pause();
    pause.grace_ms = to_ms(context_.spec.options.grace);
    context_.stop_deadlines.pause(pause.generation, context_.spec.options.grace, Clock::now());
    context_.hosts.send(kOwnHost, encode(pause));
}

void DaemonAssigner::paused(HostId host, const Paused& paused) {
    context_.stop_deadlines.paused(host, paused.generation);
    if (daemon_link_) daemon_link_->say(encode(paused));
}

void DaemonAssigner::daemon_stopped(const Stop& stop) {
    if (stop.because_of == id_ && failed_)
        context_.job.fails_always(*failed_);
    else
        context_.job.ended_elsewhere(stop.why.empty(), stop.why);
    context_.decide();
}

Result<void> DaemonAssigner::daemon_exchanged(const FrameView& frame) {
    AgentSession* const agent = context_.hosts[kOwnHost].session;
    if (agent != nullptr) agent->link().send_soon(frame.type, frame.payload);
    return {};
}

void DaemonAssigner::daemon_is_back() {
    was_there_ = true;
    news_.daemon_there();
    agent_knows_ = false;
    context_.hosts.send(kOwnHost, encode(Heard{++connections_}));
}

/// Tells for whom the ranks of this host wait, as soon as that takes longer.
void DaemonAssigner::tick() {
    if (context_.job.ending()) return;
    if (const auto text = news_.look(Clock::now())) log::warn("{}", *text);
}

bool DaemonAssigner::is_full() const {
    return daemon_link_ && daemon_link_->is_full();
}

asio::awaitable<void> DaemonAssigner::room() {
    if (daemon_link_) co_await daemon_link_->room();
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

/// The daemon says what follows: whether others go on, all start again, or the job ends.
bool DaemonAssigner::defer_failure(HostId host, const Exited& exited) {
    if (!daemon_link_ || context_.job.ending()) return false;
    Exited told = exited;
    told.traceback.clear();  // for the report here
    daemon_link_->say(encode(told));
    if (!exited.was_none()) news_.rank_ended();
    if (rank_end(exited, {}).well) return false;
    if (exited.was_none()) return true;
    context_.job.rank_left(host);
    if (!failed_ && exited.sent_signal == 0) failed_ = exited;
    return true;
}

/// A change of the members, which in a job whose nodes meet by themselves no daemon's log tells.
void DaemonAssigner::tell(std::uint64_t generation, const std::string& news) {
    const bool is_changed = context_.spec.options.join->by_hand && generation > 1;
    if (is_changed)
        log::warn("generation {} {}", generation, news);
    else
        log::info("generation {} {}", generation, news);
}

void DaemonAssigner::ending() {
    if (daemon_link_) tasks_.spawn(leave());
}

void DaemonAssigner::hurry() {
    if (daemon_link_) daemon_link_->stop_waiting();
}

asio::awaitable<void> DaemonAssigner::leave() {
    if (!daemon_link_) co_return;
    co_await daemon_link_->leave(cause_text(context_.job.outcome()));
}

asio::awaitable<void> DaemonAssigner::join() {
    if (daemon_link_) daemon_link_->stop();
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::head
