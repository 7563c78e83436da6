#include "launcher/watch/page_view.h"

#include "launcher/watch/fields.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

constexpr std::size_t kWaitingMax = 20;

struct StateLetter {
    std::string_view state;
    char letter;
};
constexpr StateLetter kStateLetters[] = {
    {"waiting", 'w'},    {"running", 'r'},        {"member", 'r'}, {"failed", 'f'},
    {"ended_well", 'e'}, {"ended_by_dtrun", 'd'}, {"lost", 'x'},
};

char letter_of(std::string_view state) {
    const auto* const found = std::ranges::find(kStateLetters, state, &StateLetter::state);
    return found == std::end(kStateLetters) ? '?' : found->letter;
}

std::int64_t percent(double part, double all) {
    return all > 0 ? static_cast<std::int64_t>(std::lround(100 * part / all)) : 0;
}

/// To a tenth, or to three digits where that is more.
double rounded(double value) {
    const double parts = value >= 1 ? 10 : 1000;
    return std::round(value * parts) / parts;
}

/// The ranks of a host, as columns.
class RankColumns {
public:
    void add(const json::object& rank, std::int64_t behind, bool late) {
        const auto number = number_of(rank, "rank");
        numbers_.push_back(number ? json::value(static_cast<std::int64_t>(*number))
                                  : json::value());
        const char letter = letter_of(text_of(rank, "state"));
        states_ += late && letter == 'r' ? 'l' : letter;
        is_behind_ = is_behind_ || behind > 0;
        behind_.push_back(behind);
        add(rank, "processors", 100, processors_);
        add(rank, "steps_per_s", 1, paces_);
    }
    void put_into(json::object& host) {
        host["ranks"] = std::move(numbers_);
        host["states"] = states_;
        if (is_behind_) host["behind"] = std::move(behind_);
        if (has_any(processors_)) host["cpu"] = std::move(processors_);
        if (has_any(paces_)) host["pace"] = std::move(paces_);
    }

private:
    static void add(const json::object& rank, std::string_view name, double factor,
                    json::array& column) {
        const auto value = number_of(rank, name);
        if (!value) return column.push_back(json::value());
        const double number = rounded(factor * *value);
        if (factor > 1 || number == std::floor(number))
            column.push_back(static_cast<std::int64_t>(std::lround(number)));
        else
            column.push_back(number);
    }
    static bool has_any(const json::array& column) {
        return std::ranges::any_of(column, [](const json::value& item) { return !item.is_null(); });
    }

    json::array numbers_, behind_, processors_, paces_;
    std::string states_;
    bool is_behind_ = false;
};

void add_gpus(json::object& into, const json::object& host) {
    const json::array& gpus = list_of(host, "gpus");
    if (gpus.empty()) return;
    json::array busy, memory, others;
    bool has_others = false;
    for (const json::value& value : gpus) {
        const json::object& gpu = object_of(value);
        busy.push_back(whole(gpu, "busy_percent"));
        memory.push_back(percent(number_of(gpu, "memory_bytes").value_or(0),
                                 number_of(gpu, "memory_total_bytes").value_or(0)));
        others.push_back(whole(gpu, "strangers"));
        has_others = has_others || whole(gpu, "strangers") > 0;
    }
    into["gpu"] = std::move(busy);
    into["gpu_memory"] = std::move(memory);
    if (has_others) into["others"] = std::move(others);
}

json::object host_of(const json::object& host, bool troubled) {
    json::object shown;
    shown["host"] = text_of(host, "host");
    shown["state"] = text_of(host, "state");
    for (const std::string_view name : {"doing", "why"})
        if (const auto text = text_of(host, name); !text.empty()) shown[name] = text;
    if (troubled) shown["troubled"] = true;
    if (const auto load = number_of(host, "load")) {
        shown["load"] = rounded(*load);
        shown["processors"] = whole(host, "processors");
        shown["memory"] = percent(number_of(host, "memory_bytes").value_or(0),
                                  number_of(host, "memory_total_bytes").value_or(0));
    }
    add_gpus(shown, host);
    return shown;
}

}  // namespace

json::object page_view(const json::object& view, const Health& health) {
    constexpr std::string_view kSame[] = {"job",     "state",     "exit_code",  "cause",
                                          "program", "dtrun_pid", "dtrun_host", "started",
                                          "ran_s",   "restarts",  "generation", "report"};
    json::object shown;
    for (const std::string_view name : kSame)
        if (const json::value* const found = view.if_contains(name)) shown[name] = *found;
    shown["findings"] = to_json(health.findings);
    if (health.pace) shown["pace"] = rounded(*health.pace);
    const json::array& waiting = list_of(view, "waiting");
    json::array waits;
    for (std::size_t i = 0; i < std::min(waiting.size(), kWaitingMax); ++i)
        waits.push_back(waiting[i]);
    shown["waiting"] = std::move(waits);
    const json::array& hosts = list_of(view, "hosts");
    const json::array& ranks = list_of(view, "ranks");
    std::unordered_map<std::string_view, std::size_t> index;
    for (std::size_t i = 0; i < hosts.size(); ++i)
        index.emplace(text_of(object_of(hosts[i]), "host"), i);
    std::vector<RankColumns> columns(hosts.size());
    double newest = number_of(view, "newest_step").value_or(-1);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const json::object& rank = object_of(ranks[i]);
        if (const auto step = number_of(rank, "step")) newest = std::max(newest, *step);
        const auto host = index.find(text_of(rank, "host"));
        if (host != index.end()) columns[host->second].add(rank, health.behind[i], health.late[i]);
    }
    if (newest >= 0) shown["step"] = static_cast<std::int64_t>(newest);
    json::array rows;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        json::object host = host_of(object_of(hosts[i]), health.troubled[i]);
        columns[i].put_into(host);
        rows.push_back(std::move(host));
    }
    shown["hosts"] = std::move(rows);
    return shown;
}

}  // namespace dtrun::watch
