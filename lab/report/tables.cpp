#include "lab/report/tables.h"

#include "base/strings.h"
#include "collectives/backends/backend_table.h"
#include "lab/plan/plan.h"
#include "lab/report/fit.h"
#include "lab/report/pairs.h"
#include "lab/report/phrases.h"
#include "lab/report/training_tables.h"

#include <fmt/format.h>
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <utility>

namespace dtrun::lab {
namespace {

using std::string_view;
using Cells = std::vector<std::string>;

/// What our own backend and this program are called: one row says both, as they are of one build.
constexpr string_view kOwn = "dtrun";

/// A property of a host, as readable text.
struct Property {
    string_view name;
    std::function<std::string(const HostRecord& host, const ReportWords& words)> text;
};

template <std::string HostRecord::*Member>
std::string plain(const HostRecord& host, const ReportWords&) {
    return host.*Member;
}

std::string memory_text(const HostRecord& host, const ReportWords&) {
    if (!std::isfinite(host.memory_bytes)) return "";
    return fmt::format("{:.0f} GiB", host.memory_bytes / (1 << 30));
}

std::string processor_text(const HostRecord& host, const ReportWords& words) {
    if (!std::isfinite(host.cores)) return host.cpu;
    return host.cpu + (host.cpu.empty() ? "" : ", ") +
           filled(words.cpus, static_cast<long long>(host.cores));
}

std::string system_text(const HostRecord& host, const ReportWords& words) {
    if (host.os.empty() || host.kernel.empty()) return host.os + host.kernel;
    return host.os + ", " + filled(words.kernel, host.kernel);
}

/// Each text once, with how often it is there: "2 x Intel E810".
std::string counted(const Cells& texts) {
    Cells seen;
    std::string lines;
    for (const std::string& text : texts) {
        if (std::ranges::find(seen, text) != seen.end()) continue;
        seen.push_back(text);
        const auto times = std::ranges::count(texts, text);
        lines +=
            (lines.empty() ? "" : "\n") + (times > 1 ? fmt::format("{} x {}", times, text) : text);
    }
    return lines;
}

std::string nics_text(const HostRecord& host, const ReportWords& words) {
    Cells texts;
    for (const NicRecord& nic : host.nics) {
        Cells parts{nic.model.empty() ? nic.name : nic.model};
        if (std::isfinite(nic.speed_mbit) && nic.speed_mbit > 0)
            parts.push_back(nic.speed_mbit >= 1'000
                                ? fmt::format("{:g} Gbit/s", nic.speed_mbit / 1'000)
                                : fmt::format("{:g} Mbit/s", nic.speed_mbit));
        if (!nic.driver.empty()) parts.push_back(filled(words.nic_driver, nic.driver));
        texts.push_back(fmt::format("{}", fmt::join(parts, ", ")));
    }
    return counted(texts);
}

/// Libraries of CUDA say nothing where there is no GPU that they could use.
std::string cuda_text(const HostRecord& host, const ReportWords&) {
    return host.gpus.empty() ? "" : host.cuda;
}

std::string gpus_text(const HostRecord& host, const ReportWords& words) {
    Cells texts;
    for (const GpuRecord& gpu : host.gpus)
        texts.push_back(std::isfinite(gpu.memory_bytes)
                            ? fmt::format("{}, {:.0f} GiB", gpu.model, gpu.memory_bytes / (1 << 30))
                            : gpu.model);
    return texts.empty() ? std::string(words.none) : counted(texts);
}

std::vector<Property> properties(const ReportWords& words) {
    std::vector<Property> all{
        {words.processors, processor_text},
        {words.memory, memory_text},
        {words.network, nics_text},
        {words.gpus, gpus_text},
        {words.gpu_links, plain<&HostRecord::gpu_links>},
        {words.operating_system, system_text},
        {words.gpu_driver, plain<&HostRecord::driver>},
        {"CUDA", cuda_text},
    };
    for (std::size_t i = 0; i < collectives::kBackendCount; ++i)
        if (collectives::kBackends[i].title != kOwn)
            all.push_back(
                {collectives::kBackends[i].title,
                 [i](const HostRecord& host, const ReportWords&) { return host.libraries[i]; }});
    all.push_back({"Python", plain<&HostRecord::python>});
    all.push_back({"PyTorch", plain<&HostRecord::torch>});
    all.push_back({"Horovod", plain<&HostRecord::horovod>});
    return all;
}

/// Hosts whose properties all read the same.
struct Kind {
    Cells texts;  ///< by property
    Cells names;
};

std::vector<Kind> kinds_of(const LabReport& report, const std::vector<Property>& all) {
    std::vector<Kind> kinds;
    for (const HostRecord& host : report.hosts) {
        Cells texts;
        for (const Property& property : all) texts.push_back(property.text(host, report.words()));
        auto known = std::ranges::find(kinds, texts, &Kind::texts);
        if (known == kinds.end()) known = kinds.insert(kinds.end(), {std::move(texts), {}});
        known->names.push_back(host.name.empty() ? std::string(report.words().this_machine)
                                                 : host.name);
    }
    return kinds;
}

std::string error_text(double rel_err) {
    if (!std::isfinite(rel_err)) return "-";
    return rel_err == 0 ? "0" : fmt::format("{:.1e}", rel_err);
}

}  // namespace

std::vector<Table::Column> columns_of(std::initializer_list<string_view> texts,
                                      std::initializer_list<string_view> names) {
    std::vector<Table::Column> columns;
    for (const string_view name : names)
        columns.push_back({std::string(name), std::ranges::find(texts, name) == texts.end(), ""});
    return columns;
}

Table with_groups_as_rows(const Table& table) {
    const auto first = std::ranges::find_if(
        table.columns, [](const Table::Column& column) { return !column.group.empty(); });
    if (first == table.columns.end()) return table;
    const auto heads = static_cast<std::size_t>(first - table.columns.begin());
    const auto width = static_cast<std::size_t>(
        std::ranges::count(table.columns, first->group, &Table::Column::group));
    Table made{table.title, table.note, {table.columns.begin(), first}, "", {}};
    made.columns.push_back({table.groups, false, ""});
    for (std::size_t i = 0; i < width; ++i)
        made.columns.push_back(table.columns[heads + i]), made.columns.back().group.clear();
    for (const Cells& row : table.rows) {
        Cells head(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(heads));
        for (std::size_t begin = heads; begin < row.size(); begin += width) {
            const auto cells = std::span(row).subspan(begin, width);
            if (std::ranges::all_of(cells, [](const std::string& cell) { return cell == "-"; }))
                continue;
            Cells& line = made.rows.emplace_back(std::exchange(head, Cells(heads)));
            line.push_back(table.columns[begin].group);
            line.insert(line.end(), cells.begin(), cells.end());
        }
    }
    return made;
}

Table environment_table(const LabReport& report) {
    Table table;
    const ReportWords& words = report.words();
    table.title = words.environment;
    const std::vector<Property> all = properties(words);
    const std::vector<Kind> kinds = kinds_of(report, all);
    if (kinds.empty()) return table;
    table.columns = {{"", false, ""}};
    Cells counts{std::string(words.hosts_of_environment)};
    for (const Kind& kind : kinds) {
        table.columns.push_back({listed(kind.names, report.language), false, ""});
        counts.push_back(std::to_string(kind.names.size()));
    }
    table.rows.push_back(counts);
    for (std::size_t i = 0; i < all.size(); ++i) {
        Cells row{std::string(all[i].name)};
        for (const Kind& kind : kinds) row.push_back(kind.texts[i].empty() ? "-" : kind.texts[i]);
        const bool known = std::any_of(row.begin() + 1, row.end(),
                                       [](const std::string& text) { return text != "-"; });
        if (known) table.rows.push_back(std::move(row));
    }
    Cells own{std::string(kOwn)};
    own.resize(table.columns.size(), report.dtrun);
    table.rows.push_back(std::move(own));
    return table;
}

std::vector<Table> sweep_tables(const LabReport& report) {
    const ReportWords& words = report.words();
    std::vector<Table> tables;
    for (const RowRecord& row : report.rows) {
        const std::string title = subject_of(row, words);
        auto table = std::ranges::find(tables, title, &Table::title);
        if (table == tables.end()) {
            table = tables.insert(tables.end(), Table{});
            table->title = title;
            table->note = words.sweep_note;
            table->columns = columns_of(
                {words.backend, words.compression_column},
                {words.backend, words.hosts, words.per_host, words.compression_column, words.size,
                 words.mean, "p50", "p99", words.algbw, words.busbw, words.rel_error, words.wrong});
        }
        table->rows.push_back(
            {row.backend, std::to_string(row.hosts), std::to_string(row.slots_per_host),
             row.compression == "none" ? std::string(words.none) : row.compression,
             short_bytes(static_cast<double>(row.bytes)), short_number(row.t_mean_us),
             short_number(row.t_p50_us), short_number(row.t_p99_us), bandwidth_text(row.algbw_GBps),
             bandwidth_text(row.busbw_GBps), error_text(row.rel_err),
             std::isfinite(row.wrong) ? fmt::format("{:.0f}", row.wrong) : "-"});
    }
    return tables;
}

Table transport_table(const LabReport& report) {
    const ReportWords& words = report.words();
    Table table;
    table.title = words.transports;
    // "asked for" says nothing to the one who has asked.
    const std::string usual = fact_in(report.language, "asked for");
    const bool has_reasons = std::ranges::any_of(report.comms, [&usual](const CommRecord& comm) {
        return !comm.why.empty() && comm.why != usual;
    });
    table.columns = columns_of({words.backend, words.library, words.data_go_by},
                               {words.backend, words.hosts, words.per_host, words.library,
                                words.data_go_by, words.made_in});
    if (has_reasons) table.columns.push_back({std::string(words.chosen_because), false, ""});
    if (std::ranges::any_of(report.comms, &CommRecord::oversubscribed))
        table.note = words.oversubscribed_note;
    std::vector<ShapeRecord> seen;
    for (const CommRecord& comm : report.comms) {
        if (std::ranges::find(seen, static_cast<const ShapeRecord&>(comm)) != seen.end()) continue;
        seen.push_back(comm);
        table.rows.push_back(
            {comm.backend, std::to_string(comm.hosts),
             std::to_string(comm.slots_per_host) + (comm.oversubscribed ? "*" : ""), comm.version,
             comm.transport,
             std::isfinite(comm.bootstrap_ms) ? short_number(comm.bootstrap_ms) + " ms" : "-"});
        if (has_reasons) table.rows.back().push_back(comm.why.empty() ? "-" : comm.why);
    }
    return table;
}

Table explain_table(const LabReport& report) {
    Table table;
    const ReportWords& words = report.words();
    table.title = words.explained;
    const auto names = {words.backend, words.what, words.used, words.in_shapes};
    table.columns = columns_of(names, names);
    std::map<std::tuple<std::string, std::string, std::string>, Cells> shapes;
    std::vector<std::tuple<std::string, std::string, std::string>> order;
    for (const CommRecord& comm : report.comms)
        for (const auto& [what, used] : comm.details) {
            auto [entry, added] = shapes.try_emplace({comm.backend, what, used});
            if (added) order.push_back(entry->first);
            const std::string shape = fmt::format("{}x{}", comm.hosts, comm.slots_per_host);
            if (std::ranges::find(entry->second, shape) == entry->second.end())
                entry->second.push_back(shape);
        }
    for (const auto& key : order)
        table.rows.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key),
                              fmt::format("{}", fmt::join(shapes[key], ", "))});
    return table;
}

Table failure_table(const LabReport& report) {
    Table table;
    const ReportWords& words = report.words();
    table.title = words.failed;
    table.columns = columns_of(
        {words.what, words.backend, words.error},
        {words.what, words.backend, words.hosts, words.per_host, words.exit_code, words.error});
    for (const FailureRecord& failure : report.failures)
        table.rows.push_back({fact_in(report.language, failure.what),
                              backend_name_in(words, failure.backend),
                              std::to_string(failure.hosts), std::to_string(failure.slots_per_host),
                              std::to_string(failure.exit_code), failure.error});
    return table;
}

Table skipped_table(const LabReport& report) {
    Table table;
    table.title = report.words().not_measured;
    table.columns = {{std::string(report.words().why), false, ""}};
    for (const std::string& line : report.skipped) table.rows.push_back({line});
    return table;
}

std::vector<Table> all_tables(const LabReport& report) {
    std::vector<Table> tables{environment_table(report)};
    std::ranges::move(training_tables(report), std::back_inserter(tables));
    std::ranges::move(sweep_tables(report), std::back_inserter(tables));
    tables.push_back(fit_table(report));
    std::ranges::move(pair_tables(report), std::back_inserter(tables));
    tables.push_back(transport_table(report));
    tables.push_back(explain_table(report));
    tables.push_back(skipped_table(report));
    tables.push_back(failure_table(report));
    std::erase_if(tables, [](const Table& table) { return table.empty(); });
    return tables;
}

std::string report_heading(const LabReport& report) {
    if (!report.title.empty()) return report.title;
    const ReportWords& words = report.words();
    const bool trains = report.rows.empty() && report.pairs.empty() && !report.train.empty();
    std::string heading(trains ? words.report_of_training : words.report_of_collectives);
    Cells names;
    for (const HostRecord& host : report.hosts)
        if (!host.name.empty()) names.push_back(host.name);
    if (names.empty()) return heading;
    return filled(words.on_hosts, heading, listed(names, report.language));
}

std::string listed(const std::vector<std::string>& names, Language language) {
    return language == Language::english ? join_names(names)
                                         : fmt::format("{}", fmt::join(names, "、"));
}

std::string short_number(double number, int digits) {
    if (!std::isfinite(number)) return "-";
    if (number == 0) return "0";
    const double magnitude = std::abs(number);
    if (magnitude < 1e-4 || magnitude >= 1e15) return fmt::format("{:.{}e}", number, digits - 1);
    const int before = std::max(static_cast<int>(std::floor(std::log10(magnitude))) + 1, -3);
    return fmt::format("{:.{}f}", number, std::max(digits - before, 0));
}

std::string bandwidth_text(double gigabytes) {
    if (!std::isfinite(gigabytes)) return "-";
    return fmt::format("{:.{}f}", gigabytes,
                       gigabytes < 0.01  ? 4
                       : gigabytes < 10  ? 3
                       : gigabytes < 100 ? 2
                                         : 1);
}

std::string short_time(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) return "-";
    if (seconds < 59.95) return fmt::format("{} s", short_number(seconds, 3));
    const double tenths = std::round(seconds * 10) / 10;
    const int minutes = static_cast<int>(tenths / 60);
    return fmt::format("{}m{:04.1f}s", minutes, tenths - 60.0 * minutes);
}

std::string percent(double fraction, int decimals) {
    if (!std::isfinite(fraction)) return "-";
    return fmt::format("{:.{}f} %", fraction * 100, decimals);
}

std::string shape_text(const ShapeRecord& shape, const ReportWords& words) {
    const auto counted_as = [](int count, string_view one, string_view many) {
        return filled(count == 1 ? one : many, count);
    };
    return counted_as(shape.hosts, words.one_host_shape, words.hosts_shape) + " x " +
           counted_as(shape.slots_per_host, words.one_rank_shape, words.ranks_shape);
}

std::string subject_of(const RowRecord& row, const ReportWords& words) {
    return filled(row.in_place ? words.subject_in_place : words.subject, row.op, row.dtype);
}

std::string label_of(string_view backend, string_view compression) {
    std::string label(backend);
    if (!compression.empty() && compression != "none" && compression != "parallel")
        label.append(" ").append(compression);
    return label;
}

}  // namespace dtrun::lab
