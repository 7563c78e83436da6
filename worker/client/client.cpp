#include "worker/client/client.h"

#include "base/ids.h"
#include "worker/client/request_texts.h"

#include <unistd.h>
#include <algorithm>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::seconds kPatienceForRank0{10};
constexpr std::size_t kSectionsMax = 64;  // an agent cuts off who is in more
/// How late an answer of the store may be. Who changes something needs half of that to hear whether it was done.
constexpr std::int64_t kLateAnswerMs = 2'000;
constexpr std::chrono::seconds kLastCall{2};  // for more members, once there are enough
constexpr SlotIndex kOwnPlace{0};             // of a member, which has one slot
const char* const kFinalized = "the worker is finalized";

/// Until when to wait for the answer to a request with that timeout, or none if it is negative.
Moment answer_limit(Op op, std::int64_t timeout_ms) {
    if (timeout_ms < 0) return Moment::max();
    if (!may_wait(op)) return moment_after(timeout_ms);
    constexpr std::int64_t kLongestMs = INT64_MAX - kLateAnswerMs;
    return moment_after(std::min(timeout_ms, kLongestMs) +
                        (changes_something(op) ? kLateAnswerMs / 2 : kLateAnswerMs));
}

/// As the protocol has it; no limit for negative ones.
std::uint64_t wire_timeout(std::int64_t timeout_ms) {
    if (timeout_ms < 0) return kForeverMs;
    return std::min<std::uint64_t>(static_cast<std::uint64_t>(timeout_ms), kForeverMs - 1);
}

}  // namespace

Client::Client(Surroundings surroundings, std::optional<ClientCredentials> credentials, Role role,
               bool elastic)
    : surroundings_(std::move(surroundings)),
      credentials_(std::move(credentials)),
      role_(role),
      elastic_(elastic && surroundings_.elastic),
      pid_(::getpid()),
      client_id_(random_id()),
      member_id_(MemberId{random_id()}),
      marks_(role == Role::rank ? surroundings_.steps_file : ""),
      connection_(*this, surroundings_.step ? "rank 0, which serves the step, has ended"
                                            : "the other side has closed the connection"),
      membership_(surroundings_.info),
      requests_(connection_, membership_, events_, client_id_),
      fences_(connection_, membership_,
              has_daemon() && !is_member() ? std::optional(std::to_underlying(member_id_))
                                           : std::nullopt) {
    subscribe();
    if (has_daemon())
        keep_alive_.emplace(connection_, *surroundings_.daemon, *credentials_,
                            [this](const FrameSocket& with) { return first_frames(with); });
    if (!surroundings_.step) return;
    SlurmStep step = *surroundings_.step;
    if (step.node.empty()) step.node = surroundings_.info.host_name;
    step_.emplace(std::move(step));
}

bool Client::is_served() const {
    return has_daemon() || launcher() == Launcher::agent || (in_step() && !step_->unmet());
}

Failure Client::unserved() const {
    if (in_step() && step_->unmet()) {
        const Failure& why = *step_->unmet();
        return {why.code,
                fmt::format("the ranks of step {} cannot meet: {}", step_->step_id(), why.text)};
    }
    return {DTRUN_NO_LAUNCHER,
            fmt::format("nobody serves a store here: start the program with dtrun, or run `dtrun "
                        "serve` and set DTRUN_SERVE, DTRUN_JOB_NAME and DTRUN_SECRET_FILE "
                        "(launcher: {})",
                        launcher_name(launcher()))};
}

bool Client::is_member() const {
    return surroundings_.launcher == Launcher::daemon && role_ == Role::rank;
}

RankInfo Client::rank_info() const {
    const Lock lock = connection_.lock();
    return membership_.rank_info();
}

Surroundings Client::inherited() const {
    Surroundings surroundings = surroundings_;
    surroundings.info = membership_.rank_info();
    return surroundings;
}

Outcome<FrameSocket> Client::dial(const WaitContext& context) {
    if (has_daemon()) return dial_daemon(*surroundings_.daemon, *credentials_, false, context);
    if (in_step()) return step_->meet(hello(), context);
    return FrameSocket::connect_unix(surroundings_.socket);
}

Hello Client::hello() const {
    Hello hello;
    hello.rank = role_ == Role::rank ? Rank{surroundings_.info.rank} : kNoRank;
    hello.generation = generation();
    hello.pid = pid_;
    hello.elastic = elastic_;
    hello.board = launcher() == Launcher::agent;
    return hello;
}

/// What a connection begins with: who is there, and what is under way.
std::vector<Bytes> Client::first_frames(const FrameSocket& socket) const {
    std::vector<Bytes> first;
    if (!in_step()) first.push_back(opening_frame(socket));  // there it was said while we met
    requests_.add_unanswered(first);
    fences_.add_unfinished(first);
    return first;
}

Bytes Client::opening_frame(const FrameSocket& socket) const {
    if (!has_daemon()) return encode(hello());
    const DaemonAddress& daemon = *surroundings_.daemon;
    Enter enter;
    enter.member = member_id_;
    enter.job_name = daemon.job_name;
    enter.name = surroundings_.info.host_name;
    enter.address = local_address(socket);
    enter.return_ms = static_cast<std::uint32_t>(daemon.timeout_ms);
    if (is_member()) {
        enter.again = member_.was_let_in();
        enter.heard = member_.heard();
        enter.slots = 1;
        enter.policy.ranks_min = enter.policy.ranks_start = daemon.ranks_min;
        enter.policy.sizes.max = daemon.ranks_max;
        enter.policy.last_call = kLastCall;
    }
    return encode(enter);
}

Outcome<void> Client::start(const WaitContext& context) {
    if (!is_served()) return {};
    const Moment begun = now();
    WaitContext dialling = context;
    if (has_daemon())
        dialling.deadline =
            std::min(dialling.deadline, moment_after(surroundings_.daemon->timeout_ms));
    Outcome<FrameSocket> socket = dial(dialling);
    if (!is_served()) return {};  // the ranks of our step cannot meet
    if (!socket) return std::unexpected(socket.error());
    const auto opened = connection_.open(
        std::move(*socket), [this](const FrameSocket& with) { return first_frames(with); });
    if (!opened && !has_daemon()) return failure(DTRUN_CLOSED, "agent: {}", opened.error().text);
    if (has_daemon()) {
        keep_alive_->start([this] { return member_.take_unsent(); });
        if (!is_member()) return {};
    }
    return take_place(begun, context);
}

/// Waits until we are welcome.
/// \param begun  when the rank began to wait for the others
Outcome<void> Client::take_place(Moment begun, const WaitContext& context) {
    WaitContext longer = context;
    if (in_step() && !step_->serves() && longer.deadline != Moment::max())
        longer.deadline += kPatienceForRank0;  // it may say who is missing
    Lock lock = connection_.lock();
    const auto is_placed = [this] { return membership_.is_placed(); };
    const auto placed = wait_for_place(lock, is_placed, longer);
    if (placed || !in_step()) return placed;
    lock.unlock();
    const auto waited = std::chrono::ceil<std::chrono::milliseconds>(now() - begun);
    const auto explained = step_->explain(placed.error(), waited);
    lock.lock();
    if (!explained) {
        if (step_->serves()) connection_.close(explained.error());
        return explained;
    }
    return connection_.wait_until(lock, is_placed, {now() + kPatienceForRank0, {}});
}

/// Waits until ready(). Nobody gets a place any more in a job that has ended.
template <class Ready>
Outcome<void> Client::wait_for_place(Lock& lock, Ready ready, const WaitContext& context) {
    const auto decided = [&] { return ready() || job_ended_; };
    if (const auto waited = connection_.wait_until(lock, decided, context); !waited) return waited;
    if (!ready()) return failure(DTRUN_CLOSED, "the job has ended: {}", *job_ended_);
    return {};
}

void Client::leave(std::string_view failure, std::function<bool()> give_up) {
    if (has_daemon() || (in_step() && role_ == Role::rank))
        connection_.finish(
            [&] {
                ending_ = true;
                return last_frames(failure);
            },
            kFinalized);
    {
        const Lock lock = connection_.lock();
        connection_.close({DTRUN_CLOSED, kFinalized});
    }
    requests_.direct_store().close();
    callers_.wait_until_none();
    if (in_step()) step_->leave(failure, std::move(give_up));
}

std::vector<Bytes> Client::last_frames(std::string_view failure) {
    std::vector<Bytes> frames;
    // A daemon need not keep what it has answered us any longer.
    if (has_daemon()) requests_.add_gone(frames);
    const Bytes leave = encode(Leave{failure.empty(), std::string(failure)});
    if (in_step()) frames.push_back(leave);
    if (!is_member()) return frames;
    member_.say(leave);
    frames.push_back(member_.take_unsent());
    return frames;
}

Outcome<Bytes> Client::request(StoreRequest request, std::int64_t timeout_ms,
                               std::function<bool()> give_up) {
    request.timeout_ms = wire_timeout(timeout_ms);
    const WaitContext context{answer_limit(request.op, timeout_ms), std::move(give_up)};
    Outcome<Bytes> results = frame_of(request, context);
    if (results) results = ask(request, std::move(*results), context);
    if (results) return results;
    return std::unexpected(named(request, timeout_ms, std::move(results.error())));
}

Outcome<Bytes> Client::ask(const StoreRequest& request, Bytes frame, const WaitContext& context) {
    if (requests_.direct_store().is_offered())
        if (auto results = ask_directly(request, frame, context)) return std::move(*results);
    return requests_.ask(request.op, std::move(frame), context, request.owner);
}

/// By the store of this machine, which does only what need not wait, and has nothing that is anybody's own: a value for
/// which we would wait is had there if it has come.
/// \return nothing: our agent is to be asked
std::optional<Outcome<Bytes>> Client::ask_directly(const StoreRequest& request, Bytes& frame,
                                                   const WaitContext& context) {
    const bool waits = may_wait(request.op);
    if (request.owner != 0 || (waits && changes_something(request.op))) return std::nullopt;
    if (!waits || request.timeout_ms == 0)
        return requests_.ask_directly(request.op, frame, context);
    if (request.op != Op::get && request.op != Op::multi_get && request.op != Op::wait)
        return std::nullopt;
    StoreRequest look = request;
    look.timeout_ms = 0;
    Bytes look_frame = encode_request({}, look, generation());
    auto found = requests_.ask_directly(request.op, look_frame, context);
    const bool is_there = found && (*found || (found->error().code != DTRUN_NOT_FOUND &&
                                               found->error().code != DTRUN_TIMED_OUT));
    if (!is_there) found.reset();
    return found;
}

Outcome<std::uint64_t> Client::submit(StoreRequest request, Requests::Submission submission,
                                      std::function<bool()> give_up) {
    request.timeout_ms = wire_timeout(submission.timeout_ms);
    submission.op = request.op;
    submission.owner = request.owner;
    submission.limit = answer_limit(request.op, submission.timeout_ms);
    auto frame = frame_of(request, {submission.limit, std::move(give_up)});
    if (frame) return requests_.submit(submission, std::move(*frame));
    return std::unexpected(named(request, submission.timeout_ms, std::move(frame.error())));
}

Outcome<Requests::Completion> Client::complete(const WaitContext& context) {
    if (!is_served()) return std::unexpected(unserved());
    auto ended = requests_.complete(context);
    if (!ended || ended->results) return ended;
    PackReader arguments(decode_request(payload_of(*ended->frame)).value().arguments);
    arguments.array();
    arguments.uint();  // the generation
    const Requests::Submission& submission = ended->submission;
    auto request = StoreRequest::decode(submission.op, arguments);
    if (!request) request = StoreRequest{.op = submission.op};  // what has been refused
    ended->results =
        std::unexpected(named(*request, submission.timeout_ms, std::move(ended->results.error())));
    return ended;
}

/// The frame of a request that can be made here and now, without its header. A helper connects when it is
/// first used.
Outcome<Bytes> Client::frame_of(const StoreRequest& request, const WaitContext& context) {
    if (!is_served()) return std::unexpected(unserved());
    if (is_over()) return std::unexpected(over());
    Bytes frame = encode_request({}, request, generation());
    if (frame.size() > FrameHeader::kPayloadBytesMax)
        return failure(DTRUN_REFUSED, "{} bytes, more than {}", frame.size(),
                       FrameHeader::kPayloadBytesMax);
    if (role_ == Role::helper) {
        const auto started = first_use_.ensure([&] { return start(context); }, context);
        if (!started) return std::unexpected(started.error());
    }
    return frame;
}

Outcome<std::vector<FenceEntry>> Client::fence(std::string_view name,
                                               std::optional<std::string_view> bytes,
                                               std::int64_t timeout_ms,
                                               std::function<bool()> give_up) {
    if (is_over()) return std::unexpected(over());
    return fences_.meet(name, bytes, timeout_ms, std::move(give_up));
}

Failure Client::over() const {
    return {DTRUN_STALE,
            fmt::format("generation {} is over, as a rank of it is lost: rejoin", generation())};
}

Outcome<void> Client::progress(std::uint64_t step, const WaitContext& context) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "only the rank's own process reports progress");
    marks_.add(step);
    if (!is_served()) return {};
    Lock lock = connection_.lock();
    if (connection_.closed()) return std::unexpected(*connection_.closed());
    const RankProgress progress{Rank{membership_.rank_info().rank}, step};
    if (has_daemon()) {
        keep_alive_->report(progress);
        return {};
    }
    lock.unlock();
    return connection_.send(encode(progress), context);
}

Outcome<RankEvent> Client::next_event(const WaitContext& context) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "events are for the rank's own process");
    if (!is_served()) return failure(DTRUN_NO_LAUNCHER, "without dtrun nobody announces events");
    Lock lock = connection_.lock();
    const auto come = [this] { return !events_.empty(); };
    if (const auto waited = connection_.wait_until(lock, come, context); !waited)
        return std::unexpected(waited.error());
    return events_.take();
}

Outcome<int> Client::event_fd() {
    if (!is_served()) return failure(DTRUN_NO_LAUNCHER, "without dtrun nobody announces events");
    const Lock lock = connection_.lock();
    return events_.fd();
}

Outcome<void> Client::rejoin(const WaitContext& context) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "only the rank's own process can rejoin");
    if (is_member()) return rejoin_daemon(context);
    if (launcher() != Launcher::agent)
        return failure(DTRUN_REFUSED,
                       "ranks of '{}' keep their place: only members of a daemon and ranks of an "
                       "elastic job of dtrun can rejoin",
                       launcher_name(launcher()));
    if (!surroundings_.elastic)
        return failure(DTRUN_REFUSED, "this job has one world for ever: start it with --min-np");
    if (!elastic_)
        return failure(DTRUN_REFUSED,
                       "this process has not said that it can go on in another "
                       "generation: set dtrun_options.elastic");
    return rejoin_agent(context);
}

/// Our agent answers when the next generation has begun.
Outcome<void> Client::rejoin_agent(const WaitContext& context) {
    Lock lock = connection_.lock();
    const std::uint64_t left = generation();
    if (std::exchange(left_, left) != left) {
        lock.unlock();
        const auto sent = connection_.send(encode(Rejoin{left}), context);
        lock.lock();
        if (!sent) return sent;
    }
    const auto ready = [this, left] { return generation() != left; };
    return wait_for_place(lock, ready, context);
}

/// Where all ranks are to start again, we are as good as started when we say so.
Outcome<void> Client::rejoin_daemon(const WaitContext& context) {
    Lock lock = connection_.lock();
    const std::uint64_t left = generation();
    while (generation() == left) {
        const bool pauses = pausing_ > left;
        if (pauses && std::exchange(paused_, pausing_) != pausing_)
            say(encode(Paused{pausing_}));
        else if (!pauses && std::exchange(left_, left) != left)
            say(encode(RejoinStatus{kOwnPlace, RejoinState::wants_rank}));
        const auto ready = [&] { return generation() != left || (pausing_ > left) != pauses; };
        if (const auto waited = wait_for_place(lock, ready, context); !waited) return waited;
    }
    return {};
}

Outcome<void> Client::wait_for_change(const WaitContext& context) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "changes are for the rank's own process");
    if (!is_served()) return failure(DTRUN_NO_LAUNCHER, "without dtrun nobody announces changes");
    Lock lock = connection_.lock();
    const auto pending = [this] { return changes_.is_pending(generation()); };
    return connection_.wait_until(lock, pending, context);
}

Outcome<std::uint64_t> Client::on_loss(std::function<void()> lost) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "losses are for the rank's own process");
    return loss_hooks_.add(std::move(lost));
}

Outcome<void> Client::section(const Section& section, const WaitContext& context) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "only the rank's own process has sections");
    if (launcher() != Launcher::agent) return {};  // nobody watches
    {
        const Lock lock = connection_.lock();
        if (connection_.closed()) return std::unexpected(*connection_.closed());
        if (section.kind == Section::Kind::end) sections_.erase(section.name);
        if (section.kind == Section::Kind::begin) {
            if (sections_.size() >= kSectionsMax && !sections_.contains(section.name))
                return failure(DTRUN_INVALID, "section '{}': {} others have not ended",
                               section.name, sections_.size());
            sections_.insert(section.name);
        }
    }
    return connection_.send(encode(section), context);
}

Outcome<void> Client::stall(const Stall& stall, const WaitContext& context) {
    if (role_ == Role::helper)
        return failure(DTRUN_FORKED, "only the rank's own process says for what it waits");
    {
        const Lock lock = connection_.lock();
        if (!takes_stalls_) return {};  // nobody would know what it is
        if (connection_.closed()) return std::unexpected(*connection_.closed());
    }
    return connection_.send(encode(stall), context);
}

}  // namespace dtrun::embedded
