#include "launcher/watch/job_table.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/output/path_pattern.h"
#include "launcher/watch/fields.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json/array.hpp>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

using output::kJobDigits;
constexpr std::size_t kTextBytesMax = 200;

std::string shown(const json::object& object, std::string_view name) {
    return escaped(text_of(object, name), kTextBytesMax);
}

std::size_t running_of(const json::array& ranks) {
    return static_cast<std::size_t>(std::ranges::count_if(
        ranks, [](const json::value& rank) { return rank.at("state").as_string() == "running"; }));
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
            shown(view, "job").substr(0, kJobDigits), whole(view, "dtrun_pid"),
            shown(view, "state"), fmt::format("{} of {}", running_of(ranks), ranks.size()),
            view.at("hosts").as_array().size(), duration_text(number_of(view, "ran_s").value_or(0)),
            (view.contains("name") ? shown(view, "name") + ": " : "") + shown(view, "program"));
    }
    return text;
}

}  // namespace dtrun::watch
