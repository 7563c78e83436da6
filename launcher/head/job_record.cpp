#include "launcher/head/job_record.h"

#include "base/clock.h"
#include "base/interfaces.h"
#include "base/signal_names.h"
#include "base/simulated.h"
#include "launcher/output/path_pattern.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <boost/json/array.hpp>
#include <chrono>
#include <filesystem>
#include <utility>

namespace dtrun::head {
namespace {

namespace json = boost::json;
using watch::EventKind;

constexpr int kSchema = 1;  // of view()
constexpr std::size_t kReportBytesMax = 32u << 10;
constexpr double kSecond = 1e9;
constexpr std::int64_t kUsageSpanMin = 100'000'000;  // ns between two measures that are compared

std::int64_t now_ns() {
    return since_1970().count();
}

double rounded(double value) {
    return static_cast<double>(static_cast<std::int64_t>(value * 1000 + 0.5)) / 1000;
}

json::object json_of(const inspect::LongWait& wait) {
    json::object object;
    object["ranks"] = wait.who;
    object["what"] = wait.what;
    object["waited_s"] =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - wait.since).count();
    return object;
}

json::array array_of(const std::vector<std::string>& words) {
    return json::array(words.begin(), words.end());
}

/// What a person calls the program: arguments may hold what is nobody's business. "python3 train.py"
std::string program_name(const std::vector<std::string>& argv) {
    if (argv.front() == "/proc/self/exe")
        return "dtrun demo";  // whose ranks are the agent's own program
    std::string name = std::filesystem::path(argv.front()).filename().string();
    const bool has_script =
        argv.size() > 1 && (argv[1].ends_with(".py") || argv[1].ends_with(".sh"));
    if (has_script) name += " " + std::filesystem::path(argv[1]).filename().string();
    return name;
}

/// By place: on each host ranks count from 0, in their order. Of a place without a rank it means nothing.
std::vector<std::uint32_t> local_ranks_of(const plan::JobSpec& spec,
                                          const plan::RankNumbers& numbers) {
    std::vector<std::uint32_t> local_ranks(numbers.slots());
    for (const plan::JobHost& host : spec.hosts) {
        std::vector<plan::SlotId> slots = host.ranks;
        std::ranges::sort(slots, {}, [&numbers](plan::SlotId slot) { return numbers.of(slot); });
        for (std::uint32_t i = 0; i < slots.size(); ++i)
            local_ranks[std::to_underlying(slots[i])] = i;
    }
    return local_ranks;
}

void add_ending(json::object& object, int code, int signal) {
    if (signal == 0)
        object["code"] = code;
    else
        object["signal"] = signal_word(signal);
}

}  // namespace

JobRecord::JobRecord(const plan::JobSpec& spec, const Hosts& hosts, const Job& job)
    : spec_(spec), hosts_(hosts), job_(job), started_ns_(now_ns()) {}

void JobRecord::tell(EventKind kind, json::object fields) {
    if (has_told_end_) return;  // hosts that were still being connected to fail then
    has_told_end_ = kind == EventKind::job_ended;
    watch::Event event{kind, ++events_, now_ns(), std::move(fields)};
    for (watch::EventListener* const listener : listeners_) listener->happened(event);
}

json::object JobRecord::named(HostId host) const {
    json::object object;
    object["host"] = hosts_.name(host);
    return object;
}

void JobRecord::job_started() {
    if (listeners_.empty()) return;
    json::object fields;
    fields["program"] = program();
    fields["ranks"] = spec_.placement.world_size();
    fields["hosts"] = spec_.hosts.size();
    fields["dtrun_pid"] = ::getpid();
    fields["dtrun_host"] = host_name();
    tell(EventKind::job_started, std::move(fields));
}

void JobRecord::set_trouble(HostId host, HostFailure failure) {
    while (!failures_.has(host)) failures_.push_back({});
    failures_[host] = std::move(failure);
}

void JobRecord::host_connecting(HostId host) {
    if (failures_.has(host)) failures_[host] = {};
}

void JobRecord::host_joined(HostId host) {
    host_connecting(host);
    if (listeners_.empty()) return;
    json::object fields = named(host);
    fields["address"] = hosts_[host].address;
    tell(EventKind::host_joined, std::move(fields));
}

void JobRecord::host_failed(HostId host, const std::string& why) {
    set_trouble(host, {false, why});
    if (listeners_.empty()) return;
    json::object fields = named(host);
    fields["why"] = why;
    tell(EventKind::host_failed, std::move(fields));
}

void JobRecord::host_lost(HostId host, const std::string& why) {
    set_trouble(host, {true, why});
    for (const plan::SlotId slot : spec_.hosts[host].ranks) {
        if (at(slot).state != Place::State::running) continue;
        at(slot).state = Place::State::lost;
        at(slot).ended_ns = now_ns();
    }
    if (listeners_.empty()) return;
    json::object fields = named(host);
    fields["why"] = why;
    tell(EventKind::host_lost, std::move(fields));
}

void JobRecord::host_left(HostId host) {
    const bool has_failed = failures_.has(host) && !failures_[host].why.empty();
    if (!listeners_.empty() && !has_failed) tell(EventKind::host_left, named(host));
}

JobRecord::Place& JobRecord::at(plan::SlotId slot) {
    const std::size_t index = std::to_underlying(slot);
    if (index >= slots_.size()) slots_.resize(std::max(index + 1, spec_.placement.ranks.size()));
    return slots_[index];
}

std::uint32_t JobRecord::world_size() const {
    std::uint32_t ranks = 0;
    const plan::RankNumbers& numbers = hosts_.numbers();
    for (std::uint32_t slot = 0; slot < numbers.slots(); ++slot)
        ranks += numbers.of(plan::SlotId{slot}) != kNoRank ? 1 : 0;
    return ranks;
}

void JobRecord::ranks_started(HostId host, const Started& started) {
    world_started(started.generation);
    for (const RankPid& rank : started.ranks)
        if (const auto slot = hosts_.planned_on(host, rank.place))
            rank_started(*slot, host, rank, started.generation);
}

void JobRecord::world_started(std::uint64_t generation) {
    ran_ = true;
    restarting_ = false;
    if (generation <= generation_) return;
    generation_ = generation;
    if (listeners_.empty()) return;
    json::object fields;
    fields["generation"] = generation;
    fields["ranks"] = world_size();
    tell(EventKind::world_started, std::move(fields));
}

void JobRecord::rank_started(plan::SlotId slot, HostId host, const RankPid& rank,
                             std::uint64_t generation) {
    const Place& known = at(slot);
    const bool runs = known.state == Place::State::running;
    if (known.pid == rank.pid && (runs || known.generation == generation))
        return;  // it goes on with another number, or its end is known already
    world_started(generation);
    at(slot) = Place{.state = Place::State::running,
                     .pid = rank.pid,
                     .generation = generation,
                     .started_ns = now_ns()};
    if (listeners_.empty()) return;
    json::object fields = named(host);
    fields["rank"] = std::to_underlying(rank.rank);
    fields["pid"] = rank.pid;
    fields["generation"] = generation;
    tell(EventKind::rank_started, std::move(fields));
}

void JobRecord::rank_exited(plan::SlotId slot, HostId host, const Exited& exited) {
    Place& known = at(slot);
    const bool could_start = exited.pid != 0;
    const bool runs = known.state == Place::State::running;
    if (could_start && runs && known.pid != exited.pid) return;  // another process is there already
    // A host tells of starts when all of its ranks have started; some may have ended by then.
    if (!could_start) known = {};
    if (could_start && !runs)
        rank_started(slot, host, {exited.rank, exited.place, exited.pid}, exited.generation);
    known.state = Place::State::ended;
    known.ended_ns = now_ns();
    if (could_start) known.started_ns = known.ended_ns - exited.ran_ns;  // its host knows better
    known.code = exited.code;
    known.signal = exited.signal;
    known.by_dtrun = exited.sent_signal != 0;
    known.out_of_memory = exited.out_of_memory;
    known.core_dumped = exited.core_dumped;
    known.hung = exited.hung;
    known.memory_max_bytes = exited.memory_max_bytes;
    if (listeners_.empty()) return;
    json::object fields = named(host);
    fields["rank"] = std::to_underlying(exited.rank);
    fields["pid"] = exited.pid;
    add_ending(fields, exited.code, exited.signal);
    fields["by_dtrun"] = known.by_dtrun;
    fields["out_of_memory"] = exited.out_of_memory;
    fields["ran_s"] = rounded(static_cast<double>(exited.ran_ns) / kSecond);
    tell(EventKind::rank_exited, std::move(fields));
}

void JobRecord::restart(const Exited& because) {
    restarting_ = true;
    if (listeners_.empty()) return;
    json::object fields;
    fields["rank"] = std::to_underlying(because.rank);
    fields["host"] = hosts_.name_of_host(because.rank);
    add_ending(fields, because.code, because.signal);
    fields["restarts"] = job_.outcome().restarts;
    tell(EventKind::restart, std::move(fields));
}

void JobRecord::stalled(const inspect::LongWait& wait) {
    stalls_.push_back(wait);
    if (!listeners_.empty()) tell(EventKind::stalled, json_of(wait));
}

void JobRecord::stall_ended(const inspect::LongWait& wait) {
    std::erase_if(stalls_, [&wait](const auto& other) { return other.what == wait.what; });
    if (!listeners_.empty()) tell(EventKind::stall_ended, json_of(wait));
}

/// What ranks waited for ends with them, whoever was quicker: the look at their waits, or they.
void JobRecord::end_stalls() {
    for (const inspect::LongWait& wait : std::exchange(stalls_, {}))
        if (!listeners_.empty()) tell(EventKind::stall_ended, json_of(wait));
}

void JobRecord::job_ending() {
    end_stalls();
    if (listeners_.empty()) return;
    json::object fields;
    fields["cause"] = name_of(job_.outcome().cause);
    tell(EventKind::job_ending, std::move(fields));
}

void JobRecord::job_ended(int code, const std::string& report) {
    end_stalls();
    ended_code_ = code;
    report_ = report.substr(0, kReportBytesMax);
    if (listeners_.empty()) return;
    json::object fields;
    fields["exit_code"] = code;
    fields["cause"] = name_of(job_.outcome().cause);
    fields["ran_s"] = rounded(static_cast<double>(now_ns() - started_ns_) / kSecond);
    fields["restarts"] = job_.outcome().restarts;
    fields["report"] = report;
    tell(EventKind::job_ended, std::move(fields));
}

std::string JobRecord::program() const {
    return program_name(spec_.options.program);
}

std::string_view JobRecord::cause() const {
    return name_of(job_.outcome().cause);
}

void JobRecord::measured(HostId host, UsageReport report) {
    if (usages_.size() < spec_.placement.ranks.size()) usages_.resize(spec_.placement.ranks.size());
    while (!usage_.has(host)) usage_.push_back({});
    for (const RankUsage& usage : report.ranks) {
        const auto slot = hosts_.planned_on(host, usage.place);
        if (!slot) continue;
        Usage& known = usages_[std::to_underlying(*slot)];
        const std::int64_t span = report.at_ns - known.at_ns;
        const bool same = known.last.pid == usage.pid && known.at_ns != 0;
        if (same && span < kUsageSpanMin) continue;
        if (!same) {
            // The first measure: its life so far.
            known = {};
            const std::int64_t age = now_ns() - at(*slot).started_ns;
            if (age > 0)
                known.processors = static_cast<double>(usage.cpu_ns) / static_cast<double>(age);
        } else if (usage.cpu_ns >= known.last.cpu_ns) {
            known.processors =
                static_cast<double>(usage.cpu_ns - known.last.cpu_ns) / static_cast<double>(span);
        }
        known.last = usage;
        known.at_ns = report.at_ns;
    }
    usage_[host] = std::move(report);
}

std::string_view JobRecord::state() const {
    if (ended_code_) return "ended";
    if (job_.ending()) return "ending";
    if (restarting_) return "restarting";
    return ran_ ? "running" : "starting";
}

std::string_view JobRecord::host_state(HostId host) const {
    const HostState& known = hosts_[host];
    if (failures_.has(host) && !failures_[host].why.empty())
        return failures_[host].lost ? "lost" : "failed";
    if (known.done) return "left";
    return known.joined ? "joined" : "connecting";
}

std::string_view JobRecord::rank_state(const Place& slot) const {
    switch (slot.state) {
        case Place::State::waiting:
            return "waiting";
        case Place::State::running:
            return "running";
        case Place::State::lost:
            return "lost";
        case Place::State::ended:
            break;
    }
    if (slot.by_dtrun) return "ended_by_dtrun";
    return slot.code == 0 && slot.signal == 0 ? "ended_well" : "failed";
}

json::object JobRecord::host_view(HostId host) const {
    json::object object = named(host);
    const std::string_view state = host_state(host);
    object["state"] = state;
    if (state == "connecting") object["doing"] = hosts_[host].phase;
    if (failures_.has(host) && !failures_[host].why.empty()) object["why"] = failures_[host].why;
    if (!hosts_[host].address.empty()) object["address"] = hosts_[host].address;
    object["slots"] = spec_.hosts[host].host.slots;
    if (!usage_.has(host) || !usage_[host] || state != "joined") return object;
    const UsageReport& report = *usage_[host];
    object["processors"] = report.processors;
    object["load"] = report.load_milli / 1000.0;
    object["memory_bytes"] = report.memory_bytes;
    object["memory_total_bytes"] = report.memory_total_bytes;
    json::array gpus;
    for (const GpuUsage& used : report.gpus) {
        json::object gpu;
        gpu["index"] = used.index;
        gpu["name"] = used.name;
        gpu["busy_percent"] = used.busy_percent;
        gpu["memory_bytes"] = used.memory_bytes;
        gpu["memory_total_bytes"] = used.memory_total_bytes;
        gpu["strangers"] = used.strangers;
        json::array ranks;
        for (const Rank rank : used.ranks) ranks.push_back(std::to_underlying(rank));
        gpu["ranks"] = std::move(ranks);
        gpus.push_back(std::move(gpu));
    }
    object["gpus"] = std::move(gpus);
    return object;
}

/// Of a rank that has ended only how far it came.
void JobRecord::add_usage(json::object& rank, plan::SlotId slot, bool runs) const {
    const std::size_t index = std::to_underlying(slot);
    if (index >= usages_.size() || usages_[index].at_ns == 0) return;
    const Usage& usage = usages_[index];
    if (usage.last.pid != slots_[index].pid) return;
    if (!runs && usage.last.counts_steps) rank["step"] = usage.last.step;
    if (!runs) return;
    rank["processors"] = rounded(usage.processors);
    rank["cpu_s"] = rounded(static_cast<double>(usage.last.cpu_ns) / kSecond);
    rank["memory_bytes"] = usage.last.memory_bytes;
    rank["processes"] = usage.last.processes;
    if (!usage.last.counts_steps) return;
    rank["step"] = usage.last.step;
    const double age =
        static_cast<double>(std::max<std::int64_t>(usage.at_ns - usage.last.step_ns, 0)) / kSecond;
    rank["step_age_s"] = rounded(age);
    if (usage.last.span_us == 0) return;
    rank["step_s"] = rounded(static_cast<double>(usage.last.span_us) / 1e6);
    // A rank that has come to a stop has no pace any more.
    const double span = std::max(static_cast<double>(usage.last.span_us) / 1e6, age);
    rank["steps_per_s"] = rounded(1 / span);
}

json::object JobRecord::rank_view(plan::SlotId slot) const {
    static const Place kWaiting;
    const std::size_t index = std::to_underlying(slot);
    const Place& known = index < slots_.size() ? slots_[index] : kWaiting;
    json::object object;
    const Rank rank = hosts_.numbers().of(slot);
    if (rank != kNoRank) object["rank"] = std::to_underlying(rank);
    object["host"] = spec_.host_of(slot);
    const std::string_view state = rank_state(known);
    object["state"] = state;
    if (known.pid != 0) object["pid"] = known.pid;
    const bool has_ended = known.state == Place::State::ended;
    if (has_ended) add_ending(object, known.code, known.signal);
    for (const auto& [name, is_so] :
         {std::pair("out_of_memory", known.out_of_memory),
          std::pair("core_dumped", known.core_dumped), std::pair("hung", known.hung)})
        if (is_so) object[name] = true;
    if (known.memory_max_bytes > 0) object["memory_max_bytes"] = known.memory_max_bytes;
    const std::int64_t until =
        has_ended || known.state == Place::State::lost ? known.ended_ns : now_ns();
    if (known.started_ns != 0)
        object["ran_s"] = rounded(static_cast<double>(until - known.started_ns) / kSecond);
    add_usage(object, slot, known.state == Place::State::running);
    return object;
}

/// What ranks wait for too long, while they can go on.
json::array JobRecord::stalls_view() const {
    json::array stalls;
    if (!job_.ending())
        for (const inspect::LongWait& wait : stalls_) stalls.push_back(json_of(wait));
    return stalls;
}

json::object JobRecord::view_of(Rank rank) const {
    json::object object;
    const auto slot = hosts_.numbers().slot_of(rank);
    if (!slot) return object;
    object["rank"] = rank_view(*slot);
    object["host"] = host_view(plan::host_of(spec_.placement.ranks[std::to_underlying(*slot)]));
    const plan::Options& options = spec_.options;
    if (!options.log.empty())
        object["log"] = fmt::format("dtrun logs {} {}", id_.substr(0, output::kJobDigits),
                                    std::to_underlying(rank));
    if (!options.output_dir.empty()) object["files"] = options.output_dir;
    return object;
}

json::object JobRecord::view(const std::vector<std::string>& waiting) const {
    json::object object;
    object["schema"] = kSchema;
    object["job"] = id_;
    if (!spec_.options.history.name.empty()) object["name"] = spec_.options.history.name;
    object["state"] = state();
    if (ended_code_) object["exit_code"] = *ended_code_;
    if (job_.ending()) object["cause"] = name_of(job_.outcome().cause);
    if (const auto& first = job_.outcome().first; first && first->rank != kNoRank)
        object["cause_rank"] = std::to_underlying(first->rank);
    if (ended_code_) object["report"] = report_;
    object["program"] = program();
    object["command"] = array_of(spec_.options.program);
    object["directory"] = spec_.directory;
    object["dtrun_pid"] = ::getpid();
    object["dtrun_host"] = host_name();
    if (!page_.empty()) object["page"] = page_;
    object["started"] = watch::utc_time(started_ns_);
    object["ran_s"] = rounded(static_cast<double>(now_ns() - started_ns_) / kSecond);
    object["generation"] = generation_;
    object["restarts"] = job_.outcome().restarts;
    json::array hosts, ranks;
    for (const HostId host : hosts_.hosts()) hosts.push_back(host_view(host));
    const plan::RankNumbers& numbers = hosts_.numbers();
    const std::vector<std::uint32_t> local_ranks = local_ranks_of(spec_, numbers);
    for (std::uint32_t i = 0; i < numbers.slots(); ++i) {
        const plan::SlotId slot{i};
        const bool runs = i < slots_.size() && slots_[i].state == Place::State::running;
        if (numbers.of(slot) == kNoRank && !runs) continue;
        json::object& rank = ranks.emplace_back(rank_view(slot)).get_object();
        if (numbers.of(slot) != kNoRank) rank["local_rank"] = local_ranks[i];
    }
    object["hosts"] = std::move(hosts);
    object["ranks"] = std::move(ranks);
    object["waiting"] = array_of(waiting);
    if (json::array stalls = stalls_view(); !stalls.empty()) object["stalls"] = std::move(stalls);
    return object;
}

}  // namespace dtrun::head
