#include "launcher/watch/health.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/plan/rank_set.h"
#include "launcher/watch/fields.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

constexpr double kStepsBehind = 2;     // fewer are no news
constexpr double kSecondsBehind = 1;   // hosts are not asked in the same moment
constexpr double kStandsAfter_s = 30;  // without a step of any rank
constexpr double kStandsAfterSteps = 10;
constexpr double kLoadFactor = 1.5;  // threads for each processor
constexpr double kMemoryFull = 0.97;
constexpr double kSamePace = 0.97;  // of the usual one
constexpr std::size_t kNamesMax = 3;

struct RankFacts {
    std::int64_t rank = -1;  ///< -1: none
    std::string_view host{}, state{};
    std::optional<double> step{}, pace{}, age_s{}, step_s{};
};

std::optional<double> median(std::vector<double> values) {
    if (values.empty()) return std::nullopt;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

std::string count_text(double number) {
    return fmt::format("{}", static_cast<std::int64_t>(number));
}

/// "11", "3.3"
std::string load_text(double load) {
    return load >= 10 ? fmt::format("{:.0f}", load) : fmt::format("{:.1f}", load);
}

std::string spaced(std::string_view name) {
    std::string text(name);
    std::ranges::replace(text, '_', ' ');
    return text;
}

/// "SIGKILL", "exit code 3"
std::string ending_of(const json::object& rank) {
    if (const auto signal = text_of(rank, "signal"); !signal.empty()) return std::string(signal);
    return fmt::format("exit code {}", whole(rank, "code"));
}

/// "rank 3 on s1 failed: exit code 3 at step 40 (ValueError: no such file)"
std::string failure_of(const json::object& rank) {
    const auto number = number_of(rank, "rank");
    std::string text = fmt::format(
        "{} on {} failed: {}", number ? "rank " + count_text(*number) : "a rank that left the job",
        text_of(rank, "host"), ending_of(rank));
    if (const auto step = number_of(rank, "step")) text += " at step " + count_text(*step);
    if (const auto line = text_of(rank, "last_line"); !line.empty())
        text += fmt::format(" ({})", line);
    return text;
}

class Examiner {
public:
    explicit Examiner(const json::object& view);

    Health examine();

private:
    void look_at_end();
    void look_at_failures();
    void look_at_hosts();
    void look_at_start();
    void look_at_stalls();
    void look_at_steps();
    void look_at_loads();
    void look_at_memory();
    void look_at_gpus();
    void tell_late(std::vector<std::size_t> late);
    void tell_standing(double age_s, const std::vector<std::size_t>& late);
    std::string well() const;

    void find(Severity severity, std::string text, std::string_view host = {},
              std::optional<std::int64_t> rank = {}) {
        health_.findings.push_back({severity, std::move(text), rank, std::string(host)});
    }
    const json::object& rank_at(std::size_t index) const { return object_of(rank_list_[index]); }
    const json::object& host_at(std::size_t index) const { return object_of(hosts_[index]); }
    bool runs(const RankFacts& rank) const {
        return rank.state == "running" || rank.state == "member";
    }
    void trouble(std::string_view host);
    std::string against(std::optional<double> pace) const;

    const json::object& view_;
    const json::array& hosts_;
    const json::array& rank_list_;
    std::string_view state_;
    std::vector<RankFacts> ranks_;
    std::unordered_map<std::string_view, std::size_t> host_index_;
    double newest_ = 0;  ///< step
    Health health_;
};

Examiner::Examiner(const json::object& view)
    : view_(view),
      hosts_(list_of(view, "hosts")),
      rank_list_(list_of(view, "ranks")),
      state_(text_of(view, "state")) {
    std::vector<double> paces;
    for (const json::value& value : rank_list_) {
        const json::object& rank = object_of(value);
        RankFacts facts{.host = text_of(rank, "host"), .state = text_of(rank, "state")};
        if (const auto number = number_of(rank, "rank"))
            facts.rank = static_cast<std::int64_t>(*number);
        facts.step = number_of(rank, "step");
        facts.pace = number_of(rank, "steps_per_s");
        facts.age_s = number_of(rank, "step_age_s");
        facts.step_s = number_of(rank, "step_s");
        if (runs(facts) && facts.pace) paces.push_back(*facts.pace);
        if (facts.step) newest_ = std::max(newest_, *facts.step);
        ranks_.push_back(facts);
    }
    newest_ = std::max(newest_, number_of(view, "newest_step").value_or(0));  // of a daemon
    health_.pace = median(std::move(paces));
    health_.behind.resize(ranks_.size());
    health_.late.resize(ranks_.size());
    health_.troubled.resize(hosts_.size());
    for (std::size_t i = 0; i < hosts_.size(); ++i)
        host_index_.emplace(text_of(host_at(i), "host"), i);
}

Health Examiner::examine() {
    if (state_ == "ended") {
        look_at_end();
    } else {
        look_at_failures();
        look_at_hosts();
        look_at_start();
        look_at_stalls();
    }
    look_at_steps();
    if (state_ != "ended") {
        look_at_loads();
        look_at_memory();
        look_at_gpus();
    }
    std::ranges::stable_sort(health_.findings, std::ranges::greater{}, &Finding::severity);
    if (health_.findings.empty()) find(Severity::well, well());
    return std::move(health_);
}

void Examiner::trouble(std::string_view host) {
    const auto found = host_index_.find(host);
    if (found != host_index_.end()) health_.troubled[found->second] = true;
}

void Examiner::look_at_end() {
    const auto code = number_of(view_, "exit_code");
    const std::string after = duration_text(number_of(view_, "ran_s").value_or(0));
    if (!code) return find(Severity::note, "ended");
    if (*code == 0) return find(Severity::well, "ended well after " + after);
    std::string text = fmt::format("ended with exit code {} after {}", count_text(*code), after);
    const auto cause = text_of(view_, "cause");
    if (cause == "rank_failed" || cause == "success") look_at_failures();
    if (cause == "host_lost" || cause == "cannot_start") look_at_hosts();
    if (health_.findings.empty())
        return find(Severity::failure, cause.empty() ? text : text + ": " + spaced(cause));
    Finding& found = health_.findings.front();
    found.text = text + ": " + found.text;
}

void Examiner::look_at_failures() {
    std::vector<std::size_t> failed;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
        if (ranks_[i].state == "failed") failed.push_back(i);
    if (failed.empty()) return;
    for (const std::size_t i : failed) trouble(ranks_[i].host);
    const auto first = number_of(view_, "cause_rank");
    const auto named = std::ranges::find_if(failed, [&](std::size_t i) {
        return first && static_cast<double>(ranks_[i].rank) == *first;
    });
    const std::size_t shown = named == failed.end() ? failed.front() : *named;
    std::string text = failure_of(rank_at(shown));
    if (failed.size() > 1)
        text += fmt::format("; {} failed as well", plural(failed.size() - 1, "rank"));
    find(Severity::failure, std::move(text), ranks_[shown].host, ranks_[shown].rank);
}

void Examiner::look_at_hosts() {
    std::vector<std::size_t> gone;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
        const auto state = text_of(host_at(i), "state");
        if (state == "lost" || state == "failed") gone.push_back(i);
    }
    if (gone.empty()) return;
    for (const std::size_t i : gone) health_.troubled[i] = true;
    const json::object& host = host_at(gone.front());
    const auto name = text_of(host, "host");
    std::string text = fmt::format(
        "{} {}: {}", name, text_of(host, "state") == "lost" ? "is lost" : "cannot take part",
        text_of(host, "why"));
    if (gone.size() > 1) text += fmt::format("; so {} more", gone.size() - 1);
    find(Severity::failure, std::move(text), name);
}

void Examiner::look_at_start() {
    if (state_ == "gathering") {
        const auto needed = number_of(view_, "slots_needed");
        return find(Severity::note, needed ? fmt::format("{} of {} slots have come",
                                                         whole(view_, "slots"), count_text(*needed))
                                           : "waits for members");
    }
    if (state_ == "damaged")
        return find(Severity::failure, "damaged: " + std::string(text_of(view_, "damage")));
    if (state_ == "restarting") return find(Severity::warning, "ranks end, and start again");
    if (state_ == "ending") return find(Severity::note, "it is ending");
    if (state_ != "starting") return;
    std::size_t ready = 0;
    const json::object* slow = nullptr;
    for (const json::value& value : hosts_) {
        const json::object& host = object_of(value);
        if (text_of(host, "state") == "joined") ++ready;
        if (slow == nullptr && text_of(host, "state") == "connecting") slow = &host;
    }
    if (slow == nullptr)
        return find(Severity::note,
                    fmt::format("{} ready, ranks start",
                                plural(ready, "host") + (ready == 1 ? " is" : " are")));
    const auto doing = text_of(*slow, "doing");
    find(Severity::note,
         fmt::format("starting: {} of {} are ready; {}{}{}", ready, plural(hosts_.size(), "host"),
                     text_of(*slow, "host"), doing.empty() ? "" : ": ", doing),
         text_of(*slow, "host"));
}

void Examiner::look_at_stalls() {
    for (const json::value& value : list_of(view_, "stalls")) {
        const json::object& stall = object_of(value);
        find(Severity::warning,
             fmt::format("waiting for {}: {}: {}",
                         duration_text(static_cast<double>(whole(stall, "waited_s"))),
                         text_of(stall, "ranks"), text_of(stall, "what")));
    }
}

/// " (6.8 against 9.5 steps/s)"
std::string Examiner::against(std::optional<double> pace) const {
    if (!pace || !health_.pace) return {};
    if (*pace >= kSamePace * *health_.pace)
        return fmt::format(" ({} steps/s, as others)", pace_text(*pace));
    return fmt::format(" ({} against {} steps/s)", pace_text(*pace), pace_text(*health_.pace));
}

void Examiner::look_at_steps() {
    std::vector<std::size_t> counting;
    std::vector<double> spans;
    double youngest_s = 1e300;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
        const RankFacts& rank = ranks_[i];
        if (!rank.step) continue;
        health_.behind[i] = static_cast<std::int64_t>(newest_ - *rank.step);
        if (!runs(rank)) continue;
        counting.push_back(i);
        youngest_s = std::min(youngest_s, rank.age_s.value_or(0));
        if (rank.step_s) spans.push_back(*rank.step_s);
    }
    if (counting.empty() || state_ == "ended") return;
    const double patience_s =
        std::max(kStandsAfter_s, kStandsAfterSteps * median(std::move(spans)).value_or(0));
    const bool stands = youngest_s > patience_s;
    // Where all stand, who is one step behind may be the one that the others wait for.
    const double limit =
        stands ? 1 : std::max(kStepsBehind, kSecondsBehind * health_.pace.value_or(0));
    std::vector<std::size_t> late;
    for (const std::size_t i : counting)
        if (static_cast<double>(health_.behind[i]) >= limit) late.push_back(i);
    for (const std::size_t i : late) {
        health_.late[i] = true;
        trouble(ranks_[i].host);
    }
    std::ranges::stable_sort(late, std::ranges::greater{},
                             [this](std::size_t i) { return health_.behind[i]; });
    if (stands) return tell_standing(youngest_s, late);
    if (!late.empty()) tell_late(std::move(late));
}

void Examiner::tell_standing(double age_s, const std::vector<std::size_t>& late) {
    std::string text =
        fmt::format("no rank has made a step for {}: ", duration_text(std::floor(age_s)));
    const json::array& waiting = list_of(view_, "waiting");
    if (late.empty()) {
        text += "all are at step " + count_text(newest_);
    } else {
        const RankFacts& last = ranks_[late.front()];
        text += fmt::format("rank {} on {} is at step {}, others at {}", last.rank, last.host,
                            count_text(*last.step), count_text(newest_));
    }
    if (!waiting.empty() && waiting[0].is_string())
        text += fmt::format("; {}", std::string_view(waiting[0].get_string()));
    if (late.empty()) return find(Severity::warning, std::move(text));
    find(Severity::warning, std::move(text), ranks_[late.front()].host, ranks_[late.front()].rank);
}

/// \param late  the last first
void Examiner::tell_late(std::vector<std::size_t> late) {
    const std::size_t last = late.front();
    const RankFacts& rank = ranks_[last];
    const std::string most = plural(static_cast<std::uint64_t>(health_.behind[last]), "step");
    const bool on_one_host =
        std::ranges::all_of(late, [&](std::size_t i) { return ranks_[i].host == rank.host; });
    std::string text;
    if (late.size() == 1) {
        text = fmt::format("rank {} on {} is {} behind{}", rank.rank, rank.host, most,
                           against(rank.pace));
    } else if (on_one_host) {
        std::vector<Rank> numbers;
        std::vector<double> paces;
        for (const std::size_t i : late) {
            numbers.push_back(static_cast<Rank>(ranks_[i].rank));
            if (ranks_[i].pace) paces.push_back(*ranks_[i].pace);
        }
        std::ranges::sort(numbers);
        text = fmt::format("ranks {} on {} are up to {} behind{}",
                           plan::rank_ranges(numbers, kNamesMax), rank.host, most,
                           against(median(std::move(paces))));
    } else {
        text = fmt::format("{} ranks are up to {} behind, the last of them rank {} on {}{}",
                           late.size(), most, rank.rank, rank.host, against(rank.pace));
    }
    find(Severity::warning, std::move(text), rank.host, rank.rank);
}

void Examiner::look_at_loads() {
    std::size_t worst = 0, count = 0;
    double worst_load = 0, worst_factor = 0;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
        const auto load = number_of(host_at(i), "load");
        const double processors = number_of(host_at(i), "processors").value_or(0);
        if (!load || processors <= 0 || *load < processors * kLoadFactor || *load < processors + 1)
            continue;
        ++count;
        health_.troubled[i] = true;
        if (*load / processors <= worst_factor) continue;
        worst_factor = *load / processors;
        worst_load = *load;
        worst = i;
    }
    if (count == 0) return;
    const auto host = text_of(host_at(worst), "host");
    std::string text = fmt::format("load {} of {} on {}", load_text(worst_load),
                                   whole(host_at(worst), "processors"), host);
    if (count > 1) text += fmt::format(", and too high on {}", plural(count - 1, "more host"));
    find(Severity::warning, std::move(text), host);
}

void Examiner::look_at_memory() {
    std::vector<std::size_t> full;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
        const auto used = number_of(host_at(i), "memory_bytes");
        const auto all = number_of(host_at(i), "memory_total_bytes");
        if (used && all && *all > 0 && *used >= kMemoryFull * *all) full.push_back(i);
    }
    if (full.empty()) return;
    for (const std::size_t i : full) health_.troubled[i] = true;
    const json::object& host = host_at(full.front());
    const auto name = text_of(host, "host");
    std::string text = fmt::format("memory of {} is full: {} of {}", name,
                                   bytes_text(*number_of(host, "memory_bytes")),
                                   bytes_text(*number_of(host, "memory_total_bytes")));
    if (full.size() > 1) text += fmt::format(", and of {}", plural(full.size() - 1, "more host"));
    find(Severity::warning, std::move(text), name);
}

void Examiner::look_at_gpus() {
    std::vector<std::string> used;
    std::string_view first;
    std::size_t count = 0;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
        const auto name = text_of(host_at(i), "host");
        for (const json::value& value : list_of(host_at(i), "gpus")) {
            const json::object& gpu = object_of(value);
            const auto strangers = whole(gpu, "strangers");
            if (strangers <= 0) continue;
            health_.troubled[i] = true;
            if (count == 0) first = name;
            if (++count > kNamesMax) continue;
            used.push_back(fmt::format("GPU {} on {}", whole(gpu, "index"), name));
        }
    }
    if (count == 0) return;
    if (count > used.size()) used.push_back(plural(count - used.size(), "more GPU"));
    find(Severity::warning, join_names(used) + ": other users", first);
}

std::string Examiner::well() const {
    std::size_t running = 0, ended = 0;
    for (const RankFacts& rank : ranks_) {
        if (runs(rank)) ++running;
        if (rank.state == "ended_well") ++ended;
    }
    if (running == 0 && ended == 0)
        return state_ == "store" ? "only a store: no rank is in it" : "no rank runs";
    std::string text = plural(running, "rank") + (running == 1 ? " runs" : " run");
    if (health_.pace) text += fmt::format(" well, {} steps/s", pace_text(*health_.pace));
    return ended > 0 ? text + fmt::format("; {} ended well", ended) : text;
}

}  // namespace

std::string_view name_of(Severity severity) {
    switch (severity) {
        case Severity::well:
            return "well";
        case Severity::note:
            return "note";
        case Severity::warning:
            return "warning";
        case Severity::failure:
            break;
    }
    return "failure";
}

Health examine(const json::object& view) {
    return Examiner(view).examine();
}

json::array to_json(const std::vector<Finding>& findings) {
    json::array list;
    for (const Finding& finding : findings) {
        json::object item;
        item["severity"] = name_of(finding.severity);
        item["text"] = finding.text;
        if (finding.rank) item["rank"] = *finding.rank;
        if (!finding.host.empty()) item["host"] = finding.host;
        list.push_back(std::move(item));
    }
    return list;
}

std::string pace_text(double steps_per_s) {
    if (steps_per_s >= 100) return fmt::format("{:.0f}", steps_per_s);
    if (steps_per_s >= 1) return fmt::format("{:.1f}", steps_per_s);
    return fmt::format("{:.2g}", steps_per_s);
}

}  // namespace dtrun::watch
