#include "launcher/watch/metrics_text.h"

#include "launcher/watch/health.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json/value.hpp>
#include <iterator>
#include <limits>
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

using Labels = std::vector<std::pair<std::string_view, std::string>>;

/// One after the other, each with its help before its samples.
class Text {
public:
    /// \param common  what every sample has
    explicit Text(Labels common) : common_(std::move(common)) {}

    void family(std::string_view name, std::string_view type, std::string_view help) {
        fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name,
                       type);
        name_ = name;
    }
    /// \param suffix  of the family's name, for what is a part of one
    void sample(const Labels& labels, double value, std::string_view suffix = "") {
        Labels every = common_;
        every.insert(every.end(), labels.begin(), labels.end());
        std::string all;
        for (const auto& [label, content] : every)
            all += fmt::format("{}{}={}", all.empty() ? "" : ",", label, in_quotes(content));
        if (!all.empty()) all = fmt::format("{{{}}}", all);
        text_ += fmt::format("{}{}{} {}\n", name_, suffix, all, value);
    }
    std::string take() { return std::move(text_); }

private:
    Labels common_;
    std::string name_, text_;
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

/// A number of a daemon, or of each of its jobs.
struct DaemonNumber {
    std::string_view field, name, type, help;
};
constexpr DaemonNumber kDaemonNumbers[] = {
    {"uptime_s", "dtrun_serve_seconds_total", "counter", "Since the start of the daemon."},
    {"connections", "dtrun_serve_connections", "gauge", "Members and clients that are connected."},
    {"members", "dtrun_serve_members", "gauge", "Members that are connected."},
    {"clients", "dtrun_serve_clients", "gauge", "Clients of stores that are connected."},
    {"unsent_bytes", "dtrun_serve_unsent_bytes", "gauge", "What waits for disk or network."},
    {"writing_s", "dtrun_serve_writing_seconds", "gauge",
     "For how long the disk has been writing."},
    {"received_bytes", "dtrun_serve_received_bytes_total", "counter", "Bytes of frames."},
    {"sent_bytes", "dtrun_serve_sent_bytes_total", "counter", "Bytes of frames."},
    {"requests", "dtrun_serve_requests_total", "counter", "Requests to stores."},
};
constexpr DaemonNumber kServedJobNumbers[] = {
    {"connections", "dtrun_serve_job_connections", "gauge", "Members and clients of a job."},
    {"age_s", "dtrun_serve_job_age_seconds", "gauge", "Since a job began, or its daemon did."},
    {"keys", "dtrun_serve_job_keys", "gauge", "Keys and queues of a job's store."},
    {"store_bytes", "dtrun_serve_job_store_bytes", "gauge", "What a job's store has in memory."},
    {"answer_bytes", "dtrun_serve_job_answer_bytes", "gauge", "Answers kept for who comes back."},
    {"history_bytes", "dtrun_serve_job_history_bytes", "gauge", "Changes kept for who watches."},
    {"waiting", "dtrun_serve_job_waiting", "gauge", "Requests that wait for a key."},
    {"ranks", "dtrun_serve_job_ranks", "gauge", "Ranks of a job with members."},
    {"generation", "dtrun_serve_job_generation", "gauge", "Number of the membership."},
    {"unused_s", "dtrun_serve_job_unused_seconds", "gauge", "Since nobody is connected to a job."},
};

struct Times {
    std::string_view field, name, help;
};
constexpr Times kDiskTimes[] = {
    {"commits", "dtrun_serve_commit_seconds", "Commits of the state to the disk."},
    {"fsyncs", "dtrun_serve_fsync_seconds", "The part of a commit that writes and syncs the log."},
};

/// Jobs younger than that, but not than the one before.
struct Age {
    double below_s;
    std::string_view label;
};
constexpr Age kAges[] = {
    {60, "minute"},
    {3'600, "hour"},
    {86'400, "day"},
    {7 * 86'400, "week"},
    {std::numeric_limits<double>::infinity(), "older"},
};

double number_in(const json::value& value) {
    return value.is_number() ? value.to_number<double>() : 0;
}

void show_operations(Text& text, const json::object& status) {
    text.family("dtrun_serve_operations_total", "counter", "Requests to stores, by operation.");
    if (const json::value* const operations = status.if_contains("operations"))
        for (const auto& [name, count] : operations->as_object())
            text.sample({{"operation", std::string(name)}}, number_in(count));
}

/// A histogram. \param times  as daemon_status.cpp describes them
void show_times(Text& text, const Times& family, const json::object& times) {
    text.family(family.name, "histogram", family.help);
    const double count = number_in(times.at("count"));
    for (const json::value& bucket : times.at("buckets").as_array())
        text.sample({{"le", fmt::format("{}", number_in(bucket.at(0)))}}, number_in(bucket.at(1)),
                    "_bucket");
    text.sample({{"le", "+Inf"}}, count, "_bucket");
    text.sample({}, number_in(times.at("sum_s")), "_sum");
    text.sample({}, count, "_count");
}

void count_ages(Text& text, const json::array& jobs) {
    text.family("dtrun_serve_jobs", "gauge", "Jobs, by age: younger than that, or older.");
    std::map<std::string_view, int> counts;
    for (const json::value& job : jobs) {
        const json::value* const age = job.as_object().if_contains("age_s");
        if (age == nullptr) continue;
        const auto* const found =
            std::ranges::upper_bound(kAges, number_in(*age), {}, &Age::below_s);
        ++counts[found->label];
    }
    for (const Age& age : kAges) text.sample({{"age", std::string(age.label)}}, counts[age.label]);
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
    Text text({{"job_id", std::string(string_at(view, "job"))}});
    text.family("dtrun_job_state", "gauge", "1 for the state that the job is in.");
    for (const std::string_view state : {"starting", "running", "restarting", "ending", "ended"})
        text.sample({{"state", std::string(state)}}, string_at(view, "state") == state ? 1 : 0);
    text.family("dtrun_job_seconds_total", "counter", "Since the start of dtrun.");
    text.sample({}, number_in(view.at("ran_s")));
    text.family("dtrun_job_restarts_total", "counter", "Restarts of all ranks.");
    text.sample({}, number_in(view.at("restarts")));
    text.family("dtrun_job_generation", "gauge", "Number of the membership.");
    text.sample({}, number_in(view.at("generation")));
    text.family("dtrun_hosts", "gauge", "Hosts of the job, by state.");
    count_states(text, view, "hosts", {"connecting", "joined", "failed", "lost", "left"});
    text.family("dtrun_ranks", "gauge", "Ranks of the job, by state.");
    count_states(text, view, "ranks",
                 {"waiting", "running", "ended_well", "failed", "ended_by_dtrun", "lost"});
    text.family("dtrun_findings", "gauge", "What is wrong with the job, as its page tells it.");
    const Health health = examine(view);
    for (const Severity severity : {Severity::failure, Severity::warning})
        text.sample(
            {{"severity", std::string(name_of(severity))}},
            static_cast<double>(std::ranges::count(health.findings, severity, &Finding::severity)));
    for (const RankNumber& number : kRankNumbers) {
        text.family(number.name, number.type, number.help);
        for (const json::value& each : view.at("ranks").as_array()) {
            const json::object& rank = each.as_object();
            const json::value* const value = rank.if_contains(number.field);
            const json::value* const name = rank.if_contains("rank");
            if (value == nullptr || name == nullptr) continue;
            text.sample({{"rank", std::to_string(name->to_number<std::int64_t>())},
                         {"host", std::string(string_at(rank, "host"))}},
                        number_in(*value));
        }
    }
    text.family("dtrun_host_load", "gauge", "Load average of a host over one minute.");
    for (const json::value& each : view.at("hosts").as_array())
        if (const json::value* const load = each.as_object().if_contains("load"))
            text.sample({{"host", std::string(string_at(each.as_object(), "host"))}},
                        number_in(*load));
    for (const GpuNumber& number : kGpuNumbers) {
        text.family(number.name, "gauge", number.help);
        for (const json::value& host : view.at("hosts").as_array()) {
            const json::value* const gpus = host.as_object().if_contains("gpus");
            if (gpus == nullptr) continue;
            for (const json::value& gpu : gpus->as_array())
                text.sample({{"host", std::string(string_at(host.as_object(), "host"))},
                             {"gpu", std::to_string(gpu.at("index").to_number<std::int64_t>())}},
                            number_in(gpu.at(number.field)) * number.factor);
        }
    }
    return text.take();
}

std::string daemon_metrics_text(const json::object& status) {
    Text text({});
    for (const DaemonNumber& number : kDaemonNumbers) {
        text.family(number.name, number.type, number.help);
        if (const json::value* const value = status.if_contains(number.field))
            text.sample({}, number_in(*value));
    }
    show_operations(text, status);
    for (const Times& times : kDiskTimes)
        if (const json::value* const found = status.if_contains(times.field))
            show_times(text, times, found->as_object());
    count_ages(text, status.at("jobs").as_array());
    for (const DaemonNumber& number : kServedJobNumbers) {
        text.family(number.name, number.type, number.help);
        for (const json::value& job : status.at("jobs").as_array())
            if (const json::value* const value = job.as_object().if_contains(number.field))
                text.sample({{"job", std::string(string_at(job.as_object(), "name"))}},
                            number_in(*value));
    }
    return text.take();
}

}  // namespace dtrun::watch
