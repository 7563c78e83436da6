#include "launcher/watch/job_table.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/output/path_pattern.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json/array.hpp>
#include <cstdint>
#include <optional>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

using output::kJobDigits;
constexpr std::size_t kHostLinesMax = 12;  // where there are more, ranks matter more
constexpr std::size_t kNameColumns = 16;   // of a host
constexpr std::size_t kWaitingMax = 3;
constexpr std::size_t kTextBytesMax = 200;

std::string text_of(const json::object& object, std::string_view name) {
    const json::value* const found = object.if_contains(name);
    return found != nullptr && found->is_string() ? escaped(found->get_string(), kTextBytesMax)
                                                  : std::string();
}

std::optional<double> number_of(const json::object& object, std::string_view name) {
    const json::value* const found = object.if_contains(name);
    if (found == nullptr || !found->is_number()) return std::nullopt;
    return found->to_number<double>();
}

std::int64_t whole(const json::object& object, std::string_view name) {
    return static_cast<std::int64_t>(number_of(object, name).value_or(0));
}

std::string cut(std::string text, std::size_t columns) {
    if (text.size() <= columns) return text;
    return text.substr(0, columns - 1) + "~";
}

std::size_t running_of(const json::array& ranks) {
    return static_cast<std::size_t>(std::ranges::count_if(
        ranks, [](const json::value& rank) { return rank.at("state").as_string() == "running"; }));
}

/// "exit 3", "SIGKILL", or the state in words
std::string state_text(const json::object& rank) {
    const std::string state = text_of(rank, "state");
    if (state == "failed" && rank.contains("signal")) return text_of(rank, "signal");
    if (state == "failed") return fmt::format("exit {}", whole(rank, "code"));
    if (state == "ended_well") return "ended well";
    return state == "ended_by_dtrun" ? "ended" : state;
}

std::string host_line(const json::object& host) {
    std::string line = fmt::format("  {:<16} {:<10}", cut(text_of(host, "host"), kNameColumns),
                                   text_of(host, "state"));
    if (const auto load = number_of(host, "load"))
        line += fmt::format(" load {:>6.2f} of {:<4} memory {:>5} of {:<5}", *load,
                            whole(host, "processors"),
                            bytes_text(number_of(host, "memory_bytes").value_or(0)),
                            bytes_text(number_of(host, "memory_total_bytes").value_or(0)));
    if (const std::string doing = text_of(host, "doing"); !doing.empty()) line += " " + doing;
    if (const std::string why = text_of(host, "why"); !why.empty()) line += " " + why;
    return line;
}

/// The GPUs of a host, in lines of their own.
std::vector<std::string> gpu_lines(const json::object& host) {
    std::vector<std::string> lines;
    const json::value* const gpus = host.if_contains("gpus");
    if (gpus == nullptr) return lines;
    for (const json::value& value : gpus->as_array()) {
        const json::object& gpu = value.as_object();
        std::string ranks;
        for (const json::value& rank : gpu.at("ranks").as_array())
            ranks +=
                fmt::format("{}{}", ranks.empty() ? " rank " : ",", rank.to_number<std::int64_t>());
        const std::int64_t strangers = whole(gpu, "strangers");
        if (strangers > 0)
            ranks += fmt::format(", {}", plural(static_cast<unsigned>(strangers), "stranger"));
        lines.push_back(
            fmt::format("    GPU {:<2} {:<20} {:>3}% memory {:>5} of {:<5}{}", whole(gpu, "index"),
                        cut(text_of(gpu, "name"), 20), whole(gpu, "busy_percent"),
                        bytes_text(number_of(gpu, "memory_bytes").value_or(0)),
                        bytes_text(number_of(gpu, "memory_total_bytes").value_or(0)), ranks));
    }
    return lines;
}

std::string rank_line(const json::object& rank, std::optional<double> newest_step) {
    const auto busy = number_of(rank, "processors");
    const auto memory = number_of(rank, "memory_bytes");
    const auto step = number_of(rank, "step");
    const auto pace = number_of(rank, "steps_per_s");
    const double behind = step && newest_step ? *newest_step - *step : 0;
    const auto number = number_of(rank, "rank");
    return fmt::format("{:>5} {:<16} {:<10} {:>7} {:>5} {:>6} {:>8} {:>7} {:>6}",
                       number ? fmt::format("{}", static_cast<long long>(*number)) : "-",
                       cut(text_of(rank, "host"), kNameColumns), cut(state_text(rank), 10),
                       whole(rank, "pid"), busy ? fmt::format("{:.0f}", *busy * 100) : "-",
                       memory ? bytes_text(*memory) : "-",
                       step ? fmt::format("{}", static_cast<long long>(*step)) : "-",
                       pace ? fmt::format("{:.2f}", *pace) : "-",
                       behind > 0 ? fmt::format("{}", static_cast<long long>(behind)) : "");
}

std::vector<const json::object*> sorted(const json::array& ranks, TopOrder order) {
    std::vector<const json::object*> list;
    for (const json::value& rank : ranks) list.push_back(&rank.as_object());
    const auto by = [&list](std::string_view name, double sign) {
        std::ranges::stable_sort(list, {}, [name, sign](const json::object* rank) {
            return sign * number_of(*rank, name).value_or(sign > 0 ? 1e300 : 0);
        });
    };
    if (order == TopOrder::rank) by("rank", 1);
    if (order == TopOrder::processors) by("processors", -1);
    if (order == TopOrder::memory) by("memory_bytes", -1);
    if (order == TopOrder::step) by("step", 1);
    return list;
}

}  // namespace

std::string jobs_table(const std::vector<json::object>& views) {
    if (views.empty()) return "no job of yours runs here\n";
    std::string text = fmt::format("{:<12} {:>8} {:<10} {:>11} {:>5} {:>14}  {}\n", "JOB", "DTRUN",
                                   "STATE", "RANKS", "HOSTS", "RUNS FOR", "PROGRAM");
    for (const json::object& view : views) {
        const json::array& ranks = view.at("ranks").as_array();
        text += fmt::format(
            "{:<12} {:>8} {:<10} {:>11} {:>5} {:>14}  {}\n",
            text_of(view, "job").substr(0, kJobDigits), whole(view, "dtrun_pid"),
            text_of(view, "state"), fmt::format("{} of {}", running_of(ranks), ranks.size()),
            view.at("hosts").as_array().size(), duration_text(number_of(view, "ran_s").value_or(0)),
            text_of(view, "program"));
    }
    return text;
}

std::string top_text(const json::object& view, TopOrder order, std::size_t rows,
                     std::size_t columns) {
    const json::array& ranks = view.at("ranks").as_array();
    const json::array& hosts = view.at("hosts").as_array();
    std::vector<std::string> lines;
    lines.push_back(fmt::format(
        "job {}: {} for {}, {} of {} run on {}{}", text_of(view, "job").substr(0, kJobDigits),
        text_of(view, "state"), duration_text(number_of(view, "ran_s").value_or(0)),
        running_of(ranks), plural(ranks.size(), "rank"), plural(hosts.size(), "host"),
        whole(view, "restarts") > 0
            ? fmt::format(", {}", plural(static_cast<unsigned>(whole(view, "restarts")), "restart"))
            : ""));
    lines.push_back("program: " + text_of(view, "program"));
    const json::array& waiting = view.at("waiting").as_array();
    for (std::size_t i = 0; i < std::min(waiting.size(), kWaitingMax); ++i)
        lines.push_back((i == 0 ? "waiting: " : "         ") +
                        escaped(waiting[i].as_string(), kTextBytesMax));
    lines.emplace_back();
    for (std::size_t i = 0; i < std::min(hosts.size(), kHostLinesMax); ++i) {
        lines.push_back(host_line(hosts[i].as_object()));
        for (std::string& line : gpu_lines(hosts[i].as_object())) lines.push_back(std::move(line));
    }
    if (hosts.size() > kHostLinesMax)
        lines.push_back(fmt::format("  and {}", plural(hosts.size() - kHostLinesMax, "more host")));
    lines.emplace_back();
    lines.push_back(fmt::format("{:>5} {:<16} {:<10} {:>7} {:>5} {:>6} {:>8} {:>7} {:>6}", "RANK",
                                "HOST", "STATE", "PID", "CPU%", "MEMORY", "STEP", "STEPS/S",
                                "BEHIND"));
    std::optional<double> newest_step;
    for (const json::value& rank : ranks)
        if (const auto step = number_of(rank.as_object(), "step"))
            newest_step = std::max(newest_step.value_or(*step), *step);
    const auto list = sorted(ranks, order);
    const std::size_t room = rows == 0 ? list.size() : rows - std::min(rows, lines.size());
    const std::size_t shown =
        list.size() <= room ? list.size() : room - std::min<std::size_t>(room, 1);
    for (std::size_t i = 0; i < shown; ++i) lines.push_back(rank_line(*list[i], newest_step));
    if (shown < list.size())
        lines.push_back(fmt::format("      and {}", plural(list.size() - shown, "more rank")));
    if (rows > 0 && lines.size() > rows) lines.resize(rows);
    std::string text;
    for (const std::string& line : lines) {
        const std::string line_shown = columns > 0 ? cut(line, columns) : line;
        text.append(line_shown, 0, line_shown.find_last_not_of(' ') + 1) += '\n';
    }
    return text;
}

}  // namespace dtrun::watch
