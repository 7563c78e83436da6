#include "launcher/watch/metrics_text.h"

#include <fmt/format.h>
#include <boost/json/value.hpp>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

/// A value of a label, between quotes.
std::string in_quotes(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '\n')
            result += "\\n";
        else if (c == '"' || c == '\\')
            (result += '\\') += c;
        else
            result += c;
    }
    return result + "\"";
}

std::string_view string_at(const json::object& object, std::string_view name) {
    const json::value* const found = object.if_contains(name);
    return found != nullptr && found->is_string() ? std::string_view(found->get_string())
                                                  : std::string_view();
}

/// One after the other, each with its help before its samples.
class Text {
public:
    explicit Text(std::string job) : job_(std::move(job)) {}

    void family(std::string_view name, std::string_view type, std::string_view help) {
        fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name,
                       type);
        name_ = name;
    }
    using Labels = std::vector<std::pair<std::string_view, std::string>>;
    void sample(const Labels& labels, double value) {
        auto out = std::back_inserter(text_);
        fmt::format_to(out, "{}{{job_id={}", name_, in_quotes(job_));
        for (const auto& [label, content] : labels)
            fmt::format_to(out, ",{}={}", label, in_quotes(content));
        fmt::format_to(out, "}} {}\n", value);
    }
    std::string take() { return std::move(text_); }

private:
    std::string job_, name_, text_;
};

/// A family of one number of each rank.
struct RankNumber {
    std::string_view field, name, type, help;
};
constexpr RankNumber kRankNumbers[] = {
    {"cpu_s", "dtrun_rank_cpu_seconds_total", "counter", "Processor time of a rank's processes."},
    {"memory_bytes", "dtrun_rank_memory_bytes", "gauge", "Memory of a rank's processes."},
    {"step", "dtrun_rank_step", "gauge", "The last step that a rank has told of."},
    {"steps_per_s", "dtrun_rank_steps_per_second", "gauge", "Steps of a rank in a second."},
};

struct GpuNumber {
    std::string_view field, name, help;
    double factor;
};
constexpr GpuNumber kGpuNumbers[] = {
    {"busy_percent", "dtrun_gpu_busy_ratio", "How busy a GPU is, from 0 to 1.", 0.01},
    {"memory_bytes", "dtrun_gpu_memory_bytes", "Used memory of a GPU.", 1},
    {"memory_total_bytes", "dtrun_gpu_memory_total_bytes", "All memory of a GPU.", 1},
};

double number_of(const json::value& value) {
    return value.is_number() ? value.to_number<double>() : 0;
}

void count_states(Text& text, const json::object& view, std::string_view of,
                  std::initializer_list<std::string_view> states) {
    std::map<std::string_view, int> counts;
    for (const std::string_view state : states) counts[state] = 0;
    for (const json::value& each : view.at(of).as_array())
        ++counts[string_at(each.as_object(), "state")];
    for (const auto& [state, count] : counts) text.sample({{"state", std::string(state)}}, count);
}

}  // namespace

std::string metrics_text(const json::object& view) {
    Text text{std::string(string_at(view, "job"))};
    text.family("dtrun_job_state", "gauge", "1 for the state that the job is in.");
    for (const std::string_view state : {"starting", "running", "restarting", "ending", "ended"})
        text.sample({{"state", std::string(state)}}, string_at(view, "state") == state ? 1 : 0);
    text.family("dtrun_job_seconds_total", "counter", "Since the start of dtrun.");
    text.sample({}, number_of(view.at("ran_s")));
    text.family("dtrun_job_restarts_total", "counter", "Restarts of all ranks.");
    text.sample({}, number_of(view.at("restarts")));
    text.family("dtrun_job_generation", "gauge", "Number of the membership.");
    text.sample({}, number_of(view.at("generation")));
    text.family("dtrun_hosts", "gauge", "Hosts of the job, by state.");
    count_states(text, view, "hosts", {"connecting", "joined", "failed", "lost", "left"});
    text.family("dtrun_ranks", "gauge", "Ranks of the job, by state.");
    count_states(text, view, "ranks",
                 {"waiting", "running", "ended_well", "failed", "ended_by_dtrun", "lost"});
    for (const RankNumber& number : kRankNumbers) {
        text.family(number.name, number.type, number.help);
        for (const json::value& each : view.at("ranks").as_array()) {
            const json::object& rank = each.as_object();
            const json::value* const value = rank.if_contains(number.field);
            const json::value* const name = rank.if_contains("rank");
            if (value == nullptr || name == nullptr) continue;
            text.sample({{"rank", std::to_string(name->to_number<std::int64_t>())},
                         {"host", std::string(string_at(rank, "host"))}},
                        number_of(*value));
        }
    }
    text.family("dtrun_host_load", "gauge", "Load average of a host over one minute.");
    for (const json::value& each : view.at("hosts").as_array())
        if (const json::value* const load = each.as_object().if_contains("load"))
            text.sample({{"host", std::string(string_at(each.as_object(), "host"))}},
                        number_of(*load));
    for (const GpuNumber& number : kGpuNumbers) {
        text.family(number.name, "gauge", number.help);
        for (const json::value& host : view.at("hosts").as_array()) {
            const json::value* const gpus = host.as_object().if_contains("gpus");
            if (gpus == nullptr) continue;
            for (const json::value& gpu : gpus->as_array())
                text.sample({{"host", std::string(string_at(host.as_object(), "host"))},
                             {"gpu", std::to_string(gpu.at("index").to_number<std::int64_t>())}},
                            number_of(gpu.at(number.field)) * number.factor);
        }
    }
    return text.take();
}

}  // namespace dtrun::watch
