#include "launcher/head/job_inspector.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/control/control_place.h"
#include "launcher/inspect/stacks_text.h"
#include "launcher/plan/exit_code.h"
#include "launcher/watch/health.h"
#include "launcher/watch/json_line.h"
#include "rendezvous/wire/message.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <utility>

namespace dtrun::head {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kReportLinesMax = 40;
constexpr std::size_t kLinesMax = 200'000;  // for who asks
constexpr std::size_t kPieceBytes = 64u << 10;
constexpr milliseconds kMeasuresAge{400};  // of measures that serve the next who asks
/// For answers to come once agents stop looking.
constexpr milliseconds kOnTheWay{500};

Answer on_error(std::string text) {
    Answer answer;
    answer.text = std::move(text);
    answer.stream = Stream::err;
    return answer;
}

}  // namespace

JobInspector::JobInspector(const asio::any_io_executor& executor, const plan::JobSpec& spec,
                           Hosts& hosts, output::StdinPump& input, JobRecord& record,
                           Router<HostId>& router,
                           std::function<std::vector<std::string>()> waiting,
                           std::function<void(int)> end)
    : spec_(spec),
      hosts_(hosts),
      input_(input),
      record_(record),
      waiting_(std::move(waiting)),
      end_(std::move(end)),
      stack_survey_(executor, hosts),
      usage_survey_(executor, hosts),
      measured_(executor),
      tasks_(executor) {
    router.on<StackReport>(&stack_survey_, &AgentSurvey<StackRequest, StackReport>::answered);
    router.on<UsageReport>(this, &JobInspector::measured);
}

void JobInspector::host_gone(HostId host) {
    stack_survey_.host_gone(host);
    usage_survey_.host_gone(host);
}

/// One that comes late counts as well: the next view has it.
void JobInspector::measured(HostId host, UsageReport report) {
    record_.measured(host, report);
    usage_survey_.answered(host, std::move(report));
}

asio::awaitable<Survey> JobInspector::take_stacks(StackRequest request) {
    Survey survey;
    const std::function<void(StackReport)> take = [&survey](StackReport stacks) {
        for (ProcessStacks& process : stacks.processes) survey.stacks.add(std::move(process));
        survey.signalled += stacks.signalled;
    };
    const milliseconds limit = milliseconds(request.limit_ms) + kOnTheWay;
    survey.silent = co_await stack_survey_.ask(request, limit, take);
    co_return survey;
}

void JobInspector::keep_tails() {
    constexpr std::size_t kAllBytes = 32u << 20, kLeast = 2u << 10, kMost = 16u << 10;
    const std::size_t ranks = std::max<std::size_t>(spec_.placement.ranks.size(), 1);
    tails_.emplace(std::clamp(kAllBytes / ranks, kLeast, kMost));
}

std::string JobInspector::tail(Rank rank) const {
    const auto place = hosts_.numbers().slot_of(rank);
    return place && tails_ ? std::string(tails_->of(*place)) : std::string();
}

/// However many look, hosts are asked once for all of them.
asio::awaitable<boost::json::object> JobInspector::measured_view(milliseconds limit) {
    if (limit > milliseconds(0) && measuring_) {
        measured_.expires_after(limit);  // who waited already goes on with what there is
        co_await measured_.async_wait(use_tuple);
    } else if (limit > milliseconds(0) && Clock::now() - measured_at_ > kMeasuresAge) {
        measuring_ = true;
        const UsageRequest question;
        const std::function<void(UsageReport)> taken_already = [](const UsageReport&) {};
        co_await usage_survey_.ask(question, limit, taken_already);
        measuring_ = false;
        measured_at_ = Clock::now();
        measured_.cancel();
    }
    boost::json::object view = record_.view(waiting_());
    if (tails_) add_last_lines(view);
    co_return view;
}

/// What ranks that have failed said last, which often tells why.
void JobInspector::add_last_lines(boost::json::object& view) const {
    constexpr std::size_t kLineBytesMax = 160;
    for (boost::json::value& value : view.at("ranks").as_array()) {
        boost::json::object& rank = value.as_object();
        if (rank.at("state") != "failed" || !rank.contains("rank")) continue;
        const std::string text =
            tail(static_cast<Rank>(rank.at("rank").to_number<std::uint32_t>()));
        const std::string_view said = trim(text);
        if (said.empty()) continue;
        rank["last_line"] = escaped(trim(said.substr(said.rfind('\n') + 1)), kLineBytesMax);
    }
}

void JobInspector::job_ended() {
    if (server_ == nullptr || mourners_.empty()) return;
    const boost::json::object view = record_.view({});
    boost::json::object end;
    for (const auto& [name, value] : view)
        if (name != "hosts" && name != "ranks") end[name] = value;
    end["findings"] = watch::to_json(watch::examine(view).findings);
    Answer answer;
    answer.text = watch::json_line(end);
    answer.last = true;
    // The process ends soon: this is small enough to be written at once.
    for (const control::CallerId caller : mourners_) server_->answer(caller, answer);
}

asio::awaitable<void> JobInspector::join() {
    tasks_.stop();
    co_await tasks_.join();
}

void JobInspector::asked(control::CallerId caller, const ControlRequest& ask) {
    switch (ask.command) {
        case ControlCommand::stacks:
            return tasks_.spawn(answer_stacks(caller, ask));
        case ControlCommand::attach:
            return attach(caller, ask);
        case ControlCommand::view:
            if (ask.limit_ms == control::kUntilTheEnd) {
                mourners_.insert(caller);
                return record_.has_ended() ? job_ended() : void();
            }
            return tasks_.spawn(answer_view(caller, ask));
        case ControlCommand::end:
            return end_(ask.signal);  // its connection ends with us
    }
    refuse(caller, "this dtrun does not know what is asked");
}

void JobInspector::refuse(control::CallerId caller, const std::string& why) {
    Answer answer = on_error("dtrun: " + why + "\n");
    answer.last = true;
    answer.code = plan::kExitUsage;
    server_->answer(caller, answer);
}

asio::awaitable<std::vector<std::string>> JobInspector::stacks_for_report(milliseconds limit) {
    StackRequest request;
    request.limit_ms = static_cast<std::uint32_t>((limit - kOnTheWay).count());
    request.brief = true;
    const Survey survey = co_await take_stacks(request);
    const auto host_of = [this](Rank rank) { return hosts_.name_of_host(rank); };
    std::vector<std::string> lines = survey.stacks.summary(ranks_of_job());
    if (const std::string names = silent_names(survey); !names.empty())
        lines.push_back("no answer in time from " + names);
    const auto places = survey.stacks.text(host_of, kReportLinesMax - lines.size(),
                                           inspect::FoldedStacks::Form::brief);
    lines.insert(lines.end(), places.begin(), places.end());
    co_return lines;
}

/// For who asks: who waits for whom, also in the stores of frameworks and in MPI, and where all are.
std::vector<std::string> JobInspector::all_lines(const Survey& survey) const {
    const auto host_of = [this](Rank rank) { return hosts_.name_of_host(rank); };
    std::vector<std::string> lines = survey.stacks.summary(ranks_of_job());
    for (const auto& more : {waiting_(), survey.stacks.text(host_of, kLinesMax)})
        lines.insert(lines.end(), more.begin(), more.end());
    return lines;
}

asio::awaitable<void> JobInspector::answer_stacks(control::CallerId caller, ControlRequest ask) {
    StackRequest request;
    request.limit_ms = ask.limit_ms;
    request.signal = ask.signal;
    request.native = ask.native;
    const Survey survey = co_await take_stacks(request);
    if (ask.signal == 0)
        answer_in_pieces(caller, all_lines(survey));
    else
        answer_in_pieces(caller, {fmt::format("sent to {}; what is printed then is in the job's "
                                              "output",
                                              plural(survey.signalled, "rank"))});
    Answer end = on_error(summary(survey));
    end.last = true;
    end.code = survey.silent.empty() ? 0 : 1;
    server_->answer(caller, end);
}

asio::awaitable<void> JobInspector::answer_view(control::CallerId caller, ControlRequest ask) {
    boost::json::object view = co_await measured_view(milliseconds(ask.limit_ms));
    view["findings"] = watch::to_json(watch::examine(view).findings);
    const std::string text = watch::json_line(view);
    for (std::size_t i = 0; i < text.size(); i += kPieceBytes) {
        Answer piece;
        piece.text = text.substr(i, kPieceBytes);
        server_->answer(caller, piece);
    }
    Answer end;
    end.last = true;
    server_->answer(caller, end);
}

/// A frame holds so much, and the text of a large job more.
void JobInspector::answer_in_pieces(control::CallerId caller,
                                    const std::vector<std::string>& lines) {
    Answer piece;
    for (const std::string& line : lines) {
        piece.text += line + "\n";
        if (piece.text.size() < kPieceBytes) continue;
        server_->answer(caller, piece);
        piece.text.clear();
    }
    if (!piece.text.empty()) server_->answer(caller, piece);
}

/// All ranks, and of those that have ended, that they have.
std::map<Rank, std::string> JobInspector::ranks_of_job() const {
    std::map<Rank, std::string> ranks;
    const plan::RankNumbers& numbers = hosts_.numbers();
    for (std::uint32_t slot = 0; slot < numbers.slots(); ++slot) {
        const Rank rank = numbers.of(plan::SlotId{slot});
        if (rank == kNoRank) continue;
        const auto ending = endings_.find(plan::SlotId{slot});
        ranks[rank] = ending != endings_.end() && ending->second.code ? "it has ended" : "";
    }
    return ranks;
}

/// Which hosts have not answered.
std::string JobInspector::silent_names(const Survey& survey) const {
    std::vector<std::string> names;
    for (const HostId host : survey.silent) names.push_back(hosts_.name(host));
    return fmt::format("{}", fmt::join(names, ", "));
}

std::string JobInspector::summary(const Survey& survey) const {
    const std::string names = silent_names(survey);
    return names.empty() ? "" : fmt::format("dtrun: no answer in time: {} (--timeout)\n", names);
}

bool JobInspector::takes_input(plan::SlotId rank) const {
    return spec_.options.stdin_target.includes(hosts_.numbers().of(rank));
}

/// A terminal has no end of input.
bool JobInspector::can_type(plan::SlotId rank) const {
    return has_terminal(rank) || (takes_input(rank) && !input_.ended());
}

void JobInspector::attach(control::CallerId caller, const ControlRequest& ask) {
    const auto rank = hosts_.numbers().slot_of(ask.rank);
    if (!rank) return refuse(caller, fmt::format("the job has no rank {} here", ask.rank));
    watchers_[caller].rank = *rank;
    Answer first;
    first.raw_terminal = has_terminal(*rank);
    if (!can_type(*rank))
        first =
            on_error(fmt::format("dtrun: rank {} takes no input ({}); this is its output\n",
                                 ask.rank, takes_input(*rank) ? "its end was read" : "--stdin"));
    server_->answer(caller, first);
    if (first.raw_terminal && ask.has_terminal) resized(caller, ask.size);
    finish_if_ended(*rank);
}

/// The rank was given a terminal (--pty).
bool JobInspector::has_terminal(plan::SlotId rank) const {
    return spec_.options.pty && std::cmp_equal(*spec_.options.pty, std::to_underlying(rank));
}

void JobInspector::show(plan::SlotId rank, const OutputView& output) {
    for (auto& [caller, watcher] : watchers_) {
        if (watcher.rank != rank) continue;
        // The job does not wait for who watches.
        if (!server_->has_room(caller)) {
            watcher.dropped_bytes += output.data.size();
            continue;
        }
        if (const auto dropped = std::exchange(watcher.dropped_bytes, 0); dropped > 0)
            server_->answer(caller, on_error(fmt::format("dtrun: {} bytes are left out here, as "
                                                         "they were not read\n",
                                                         dropped)));
        Answer answer;
        answer.text = output.data;
        answer.stream = output.header.stream;
        server_->answer(caller, answer);
    }
}

void JobInspector::output_ended(plan::SlotId rank, Stream stream) {
    Ending& ending = endings_[rank];
    (stream == Stream::out ? ending.out : ending.err) = true;
    finish_if_ended(rank);
}

void JobInspector::rank_ended(plan::SlotId rank, const Exited& exited) {
    endings_[rank].code = exited.signal != 0 ? plan::kExitSignalBase + exited.signal : exited.code;
    finish_if_ended(rank);
}

void JobInspector::finish_if_ended(plan::SlotId rank) {
    const auto found = endings_.find(rank);
    if (watchers_.empty() || found == endings_.end()) return;
    const Ending& ending = found->second;
    // A terminal is one stream.
    if (!ending.out || !ending.code || (!ending.err && !has_terminal(rank))) return;
    Answer end;
    end.last = true;
    end.code = static_cast<std::uint8_t>(*ending.code);
    for (const auto& [caller, watcher] : watchers_)
        if (watcher.rank == rank) server_->answer(caller, end);
}

/// A piece at a time: the next one comes when this one is answered.
void JobInspector::typed(control::CallerId caller, std::string_view bytes) {
    const auto found = watchers_.find(caller);
    if (found == watchers_.end()) return;
    if (can_type(found->second.rank)) input_.inject(bytes);
    found->second.waits_for_room = true;
    input_taken();
}

void JobInspector::input_taken() {
    if (watchers_.empty() || !input_.has_room()) return;
    for (auto& [caller, watcher] : watchers_) {
        if (!std::exchange(watcher.waits_for_room, false)) continue;
        Answer answer;
        answer.takes_more = true;
        server_->answer(caller, answer);
    }
}

void JobInspector::resized(control::CallerId caller, const TerminalSize& size) {
    const auto found = watchers_.find(caller);
    if (found == watchers_.end() || !spec_.options.pty) return;
    const auto place = hosts_.numbers().slot_of(static_cast<Rank>(*spec_.options.pty));
    if (place != found->second.rank) return;
    const RankPlace& where = spec_.placement.ranks[std::to_underlying(*place)];
    hosts_.send(plan::host_of(where), encode(Resize{size}));
}

void JobInspector::left(control::CallerId caller) {
    watchers_.erase(caller);
    mourners_.erase(caller);
}

}  // namespace dtrun::head
