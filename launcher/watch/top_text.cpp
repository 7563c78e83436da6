#include "launcher/watch/top_text.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/output/path_pattern.h"
#include "launcher/watch/fields.h"
#include "launcher/watch/health.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

constexpr std::size_t kHostLinesMax = 12;  // where there are more, ranks matter more
constexpr std::size_t kNameColumns = 16;   // of a host
constexpr std::size_t kFindingsMax = 3, kWaitingLinesMax = 3;
constexpr std::size_t kLineBytesMax = 400;

std::string printable(const json::object& object, std::string_view name) {
    return escaped(text_of(object, name), kLineBytesMax);
}

std::string cut(std::string text, std::size_t columns) {
    if (text.size() <= columns) return text;
    return text.substr(0, columns - 1) + "~";
}

std::string count_text(std::optional<double> number) {
    return number ? fmt::format("{}", static_cast<long long>(*number)) : "-";
}

/// "exit 3", "SIGKILL", or the state in words
std::string state_text(const json::object& rank) {
    const std::string state = printable(rank, "state");
    if (state == "failed" && rank.contains("signal")) return printable(rank, "signal");
    if (state == "failed") return fmt::format("exit {}", whole(rank, "code"));
    if (state == "ended_well") return "ended well";
    return state == "ended_by_dtrun" ? "ended" : state;
}

struct Row {
    const json::object& rank;
    std::int64_t behind;
    bool late;
};

/// A column of ranks.
struct Column {
    std::string_view title;
    std::size_t width;
    int worth;  ///< where there is no room for all, the least goes first
    std::string (*cell)(const Row& row);
};
constexpr Column kColumns[] = {
    {"RANK", 5, 9, [](const Row& row) { return count_text(number_of(row.rank, "rank")); }},
    {"HOST", kNameColumns, 8,
     [](const Row& row) { return cut(printable(row.rank, "host"), kNameColumns); }},
    {"STATE", 10, 6, [](const Row& row) { return cut(state_text(row.rank), 10); }},
    {"PID", 7, 1, [](const Row& row) { return count_text(number_of(row.rank, "pid")); }},
    {"CPU%", 5, 3,
     [](const Row& row) {
         const auto busy = number_of(row.rank, "processors");
         return busy ? fmt::format("{:.0f}", *busy * 100) : "-";
     }},
    {"MEMORY", 6, 2,
     [](const Row& row) {
         const auto memory = number_of(row.rank, "memory_bytes");
         return memory ? bytes_text(*memory) : "-";
     }},
    {"STEP", 8, 5, [](const Row& row) { return count_text(number_of(row.rank, "step")); }},
    {"STEPS/S", 7, 4,
     [](const Row& row) {
         const auto pace = number_of(row.rank, "steps_per_s");
         return pace ? fmt::format("{:.2f}", *pace) : "-";
     }},
    {"BEHIND", 6, 10,
     [](const Row& row) { return row.behind > 0 ? fmt::format("{}", row.behind) : ""; }},
};

bool is_left(const Column& column) {
    return column.title == "HOST" || column.title == "STATE";
}

class TopText {
public:
    TopText(const json::object& view, TopOrder order, const TopShape& shape)
        : view_(view),
          order_(order),
          shape_(shape),
          health_(examine(view)),
          hosts_(list_of(view, "hosts")),
          ranks_(list_of(view, "ranks")) {}

    std::string text();

private:
    void add(std::string line, const char* color = "");
    void add_sentence(const std::string& text, const char* color);
    void add_head();
    void add_hosts();
    void add_ranks();
    std::string host_line(const json::object& host) const;
    void add_gpus(const json::object& host);
    std::vector<Column> columns() const;
    std::vector<std::size_t> sorted() const;
    std::size_t running() const;
    Row row(std::size_t index) const {
        return {object_of(ranks_[index]), health_.behind[index], health_.late[index]};
    }
    /// 0: it has failed, or is lost; 1: late; 2: neither
    int trouble_of(std::size_t index) const;

    const json::object& view_;
    TopOrder order_;
    TopShape shape_;
    Health health_;
    const json::array& hosts_;
    const json::array& ranks_;
    std::vector<std::string> lines_;
};

constexpr const char *kRed = "\x1b[1;31m", *kYellow = "\x1b[33m", *kGreen = "\x1b[32m",
                     *kBold = "\x1b[1m";

const char* color_of(Severity severity) {
    switch (severity) {
        case Severity::well:
            return kGreen;
        case Severity::note:
            return "";
        case Severity::warning:
            return kYellow;
        case Severity::failure:
            break;
    }
    return kRed;
}

void TopText::add(std::string line, const char* color) {
    if (shape_.columns > 0) line = cut(std::move(line), shape_.columns);
    line.resize(line.find_last_not_of(' ') + 1);
    const bool is_colored = shape_.color && *color != '\0';
    lines_.push_back(is_colored ? color + line + "\x1b[0m" : line);
}

/// In as many lines as it takes.
void TopText::add_sentence(const std::string& text, const char* color) {
    if (shape_.columns == 0) return add(text, color);
    const std::string folded = wrap(text, 0, shape_.columns);
    for (const std::string_view line : split(folded, '\n'))
        if (!line.empty()) add(std::string(line), color);
}

std::size_t TopText::running() const {
    return static_cast<std::size_t>(std::ranges::count_if(ranks_, [](const json::value& rank) {
        return text_of(object_of(rank), "state") == "running";
    }));
}

void TopText::add_head() {
    const auto restarts = static_cast<std::uint64_t>(whole(view_, "restarts"));
    add(fmt::format("job {}: {} for {}, {} of {} run on {}{}",
                    printable(view_, "job").substr(0, output::kJobDigits),
                    printable(view_, "state"), duration_text(number_of(view_, "ran_s").value_or(0)),
                    running(), plural(ranks_.size(), "rank"), plural(hosts_.size(), "host"),
                    restarts > 0 ? fmt::format(", {}", plural(restarts, "restart")) : ""));
    add("program: " + printable(view_, "program"));
    for (std::size_t i = 0; i < std::min(health_.findings.size(), kFindingsMax); ++i) {
        const Finding& finding = health_.findings[i];
        add_sentence(escaped(finding.text, kLineBytesMax), color_of(finding.severity));
    }
    const json::array& waiting = list_of(view_, "waiting");
    for (std::size_t i = 0; i < std::min(waiting.size(), kWaitingLinesMax); ++i)
        if (waiting[i].is_string())
            add((i == 0 ? "waiting: " : "         ") +
                escaped(waiting[i].get_string(), kLineBytesMax));
}

std::string TopText::host_line(const json::object& host) const {
    std::string line = fmt::format("  {:<16} {:<10}", cut(printable(host, "host"), kNameColumns),
                                   printable(host, "state"));
    if (const auto load = number_of(host, "load"))
        line += fmt::format(" load {:>6.2f} of {:<4} memory {:>5} of {:<5}", *load,
                            whole(host, "processors"),
                            bytes_text(number_of(host, "memory_bytes").value_or(0)),
                            bytes_text(number_of(host, "memory_total_bytes").value_or(0)));
    if (const std::string doing = printable(host, "doing"); !doing.empty()) line += " " + doing;
    if (const std::string why = printable(host, "why"); !why.empty()) line += " " + why;
    return line;
}

/// In lines of their own, or where room is short in one.
void TopText::add_gpus(const json::object& host) {
    const json::array& gpus = list_of(host, "gpus");
    std::string busy;
    for (const json::value& value : gpus) {
        const json::object& gpu = object_of(value);
        busy += fmt::format(" {:>3}", whole(gpu, "busy_percent"));
        if (shape_.rows > 0) continue;
        std::string users;
        for (const json::value& rank : list_of(gpu, "ranks"))
            users += fmt::format("{}{}", users.empty() ? " rank " : ",",
                                 rank.is_number() ? rank.to_number<std::int64_t>() : -1);
        if (const std::int64_t strangers = whole(gpu, "strangers"); strangers > 0)
            users += fmt::format(", {}", plural(static_cast<unsigned>(strangers), "stranger"));
        add(fmt::format("    GPU {:<2} {:<20} {:>3}% memory {:>5} of {:<5}{}", whole(gpu, "index"),
                        cut(printable(gpu, "name"), 20), whole(gpu, "busy_percent"),
                        bytes_text(number_of(gpu, "memory_bytes").value_or(0)),
                        bytes_text(number_of(gpu, "memory_total_bytes").value_or(0)), users));
    }
    if (shape_.rows > 0 && !gpus.empty()) add("    GPUs busy" + busy + " %");
}

/// Those with a trouble first; on a screen they take no more than a third.
void TopText::add_hosts() {
    std::vector<std::size_t> order(hosts_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater{},
                             [this](std::size_t i) { return bool(health_.troubled[i]); });
    const std::size_t before = lines_.size();
    const std::size_t room =
        shape_.rows == 0 ? hosts_.size() * 100 : std::max<std::size_t>(shape_.rows / 3, 1);
    std::size_t told = 0;
    while (told < std::min(order.size(), kHostLinesMax) && lines_.size() - before < room) {
        const std::size_t i = order[told++];
        add(host_line(object_of(hosts_[i])), health_.troubled[i] ? kYellow : "");
        add_gpus(object_of(hosts_[i]));
    }
    if (told < order.size()) add("  and " + plural(order.size() - told, "more host"));
}

std::vector<Column> TopText::columns() const {
    std::vector<Column> kept(std::begin(kColumns), std::end(kColumns));
    const auto width = [&kept] {
        return std::accumulate(
            kept.begin(), kept.end(), kept.size() - 1,
            [](std::size_t sum, const Column& column) { return sum + column.width; });
    };
    while (shape_.columns > 0 && kept.size() > 1 && width() > shape_.columns)
        kept.erase(std::ranges::min_element(kept, {}, &Column::worth));
    return kept;
}

int TopText::trouble_of(std::size_t index) const {
    const auto state = text_of(object_of(ranks_[index]), "state");
    if (state == "failed" || state == "lost") return 0;
    return health_.late[index] ? 1 : 2;
}

std::vector<std::size_t> TopText::sorted() const {
    std::vector<std::size_t> list(ranks_.size());
    std::iota(list.begin(), list.end(), 0);
    const auto by = [&](std::string_view name, double sign) {
        std::ranges::stable_sort(list, {}, [&, name, sign](std::size_t i) {
            return sign * number_of(object_of(ranks_[i]), name).value_or(sign > 0 ? 1e300 : 0);
        });
    };
    if (order_ == TopOrder::rank || order_ == TopOrder::trouble) by("rank", 1);
    if (order_ == TopOrder::processors) by("processors", -1);
    if (order_ == TopOrder::memory) by("memory_bytes", -1);
    if (order_ == TopOrder::step) by("step", 1);
    if (order_ == TopOrder::trouble)
        std::ranges::stable_sort(list, {}, [this](std::size_t i) {
            const int trouble = trouble_of(i);
            return std::pair(trouble, trouble == 1 ? -health_.behind[i] : 0);
        });
    return list;
}

void TopText::add_ranks() {
    const std::vector<Column> shown_columns = columns();
    const auto line_of = [&shown_columns](const auto& cell) {
        std::string line;
        for (const Column& column : shown_columns) {
            if (!line.empty()) line += ' ';
            line += is_left(column) ? fmt::format("{:<{}}", cell(column), column.width)
                                    : fmt::format("{:>{}}", cell(column), column.width);
        }
        return line;
    };
    add(line_of([](const Column& column) { return std::string(column.title); }), kBold);
    const std::vector<std::size_t> list = sorted();
    const std::size_t room =
        shape_.rows == 0 ? list.size() : shape_.rows - std::min(shape_.rows, lines_.size());
    const std::size_t fit =
        list.size() <= room ? list.size() : room - std::min<std::size_t>(room, 1);
    for (std::size_t i = 0; i < fit; ++i) {
        const Row row_shown = row(list[i]);
        const int trouble = trouble_of(list[i]);
        add(line_of([&row_shown](const Column& column) { return column.cell(row_shown); }),
            trouble == 0   ? kRed
            : trouble == 1 ? kYellow
                           : "");
    }
    if (fit == list.size()) return;
    std::string rest = "      and " + plural(list.size() - fit, "more rank");
    const auto in_trouble =
        std::ranges::count_if(list.begin() + static_cast<std::ptrdiff_t>(fit), list.end(),
                              [this](std::size_t i) { return trouble_of(i) < 2; });
    if (in_trouble > 0) rest += fmt::format(", {} of them late or failed", in_trouble);
    add(std::move(rest));
}

std::string TopText::text() {
    add_head();
    add("");
    add_hosts();
    add("");
    add_ranks();
    if (shape_.rows > 0 && lines_.size() > shape_.rows) lines_.resize(shape_.rows);
    std::string all;
    for (const std::string& line : lines_) all += line + '\n';
    return all;
}

}  // namespace

std::string top_text(const json::object& view, TopOrder order, const TopShape& shape) {
    return TopText(view, order, shape).text();
}

}  // namespace dtrun::watch
