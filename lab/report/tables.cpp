#include "lab/report/tables.h"

#include "base/strings.h"
#include "collectives/backends/backend_table.h"
#include "lab/plan/plan.h"
#include "lab/report/fit.h"
#include "lab/report/pairs.h"
#include "lab/report/training_tables.h"

#include <fmt/format.h>
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

namespace dtrun::lab {
namespace {

using std::string_view;
using Cells = std::vector<std::string>;

/// What our own backend and this program are called: one row says both, as they are of one build.
constexpr string_view kOwn = "dtrun";

/// A property of a host, as readable text.
struct Property {
    string_view name;
    std::function<std::string(const HostRecord& host)> text;
};

template <std::string HostRecord::*Member>
std::string plain(const HostRecord& host) {
    return host.*Member;
}

std::string memory_text(const HostRecord& host) {
    if (!std::isfinite(host.memory_bytes)) return "";
    return fmt::format("{:.0f} GiB", host.memory_bytes / (1 << 30));
}

std::string processor_text(const HostRecord& host) {
    if (!std::isfinite(host.cores)) return host.cpu;
    return fmt::format("{}{}{:.0f} CPUs", host.cpu, host.cpu.empty() ? "" : ", ", host.cores);
}

std::string system_text(const HostRecord& host) {
    const bool both = !host.os.empty() && !host.kernel.empty();
    return host.os + (both ? ", kernel " : "") + host.kernel;
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

std::string nics_text(const HostRecord& host) {
    Cells texts;
    for (const NicRecord& nic : host.nics) {
        Cells parts{nic.model.empty() ? nic.name : nic.model};
        if (std::isfinite(nic.speed_mbit) && nic.speed_mbit > 0)
            parts.push_back(nic.speed_mbit >= 1'000
                                ? fmt::format("{:g} Gbit/s", nic.speed_mbit / 1'000)
                                : fmt::format("{:g} Mbit/s", nic.speed_mbit));
        if (!nic.driver.empty()) parts.push_back("driver " + nic.driver);
        texts.push_back(fmt::format("{}", fmt::join(parts, ", ")));
    }
    return counted(texts);
}

/// Libraries of CUDA say nothing where there is no GPU that they could use.
std::string cuda_text(const HostRecord& host) {
    return host.gpus.empty() ? "" : host.cuda;
}

std::string gpus_text(const HostRecord& host) {
    Cells texts;
    for (const GpuRecord& gpu : host.gpus)
        texts.push_back(std::isfinite(gpu.memory_bytes)
                            ? fmt::format("{}, {:.0f} GiB", gpu.model, gpu.memory_bytes / (1 << 30))
                            : gpu.model);
    return texts.empty() ? "none" : counted(texts);
}

std::vector<Property> properties() {
    std::vector<Property> all{
        {"Processors", processor_text},
        {"Memory", memory_text},
        {"Network", nics_text},
        {"GPUs", gpus_text},
        {"Links of GPUs", plain<&HostRecord::gpu_links>},
        {"System", system_text},
        {"GPU driver", plain<&HostRecord::driver>},
        {"CUDA", cuda_text},
    };
    for (std::size_t i = 0; i < collectives::kBackendCount; ++i)
        if (collectives::kBackends[i].title != kOwn)
            all.push_back({collectives::kBackends[i].title,
                           [i](const HostRecord& host) { return host.libraries[i]; }});
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
        for (const Property& property : all) texts.push_back(property.text(host));
        auto known = std::ranges::find(kinds, texts, &Kind::texts);
        if (known == kinds.end()) known = kinds.insert(kinds.end(), {std::move(texts), {}});
        known->names.push_back(host.name.empty() ? "this machine" : host.name);
    }
    return kinds;
}

std::string error_text(double rel_err) {
    if (!std::isfinite(rel_err)) return "-";
    return rel_err == 0 ? "0" : fmt::format("{:.1e}", rel_err);
}

}  // namespace

Table environment_table(const LabReport& report) {
    Table table;
    table.title = "Environment";
    const std::vector<Property> all = properties();
    const std::vector<Kind> kinds = kinds_of(report, all);
    if (kinds.empty()) return table;
    table.columns = {{"", false}};
    Cells counts{"Hosts"};
    for (const Kind& kind : kinds) {
        table.columns.push_back({join_names(kind.names), false});
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
    std::vector<Table> tables;
    for (const RowRecord& row : report.rows) {
        const std::string title = subject_of(row);
        auto table = std::ranges::find(tables, title, &Table::title);
        if (table == tables.end()) {
            table = tables.insert(tables.end(), Table{});
            table->title = title;
            table->note = "Times in microseconds, of the slowest rank; bandwidths in GB/s (1e9).";
            table->columns = {{"backend", false},     {"hosts", true},      {"per host", true},
                              {"compression", false}, {"size", true},       {"mean", true},
                              {"p50", true},          {"p99", true},        {"algbw", true},
                              {"busbw", true},        {"rel. error", true}, {"wrong", true}};
        }
        table->rows.push_back({row.backend, std::to_string(row.hosts),
                               std::to_string(row.slots_per_host), row.compression,
                               short_bytes(static_cast<double>(row.bytes)),
                               short_number(row.t_mean_us), short_number(row.t_p50_us),
                               short_number(row.t_p99_us), bandwidth_text(row.algbw_GBps),
                               bandwidth_text(row.busbw_GBps), error_text(row.rel_err),
                               std::isfinite(row.wrong) ? fmt::format("{:.0f}", row.wrong) : "-"});
    }
    return tables;
}

Table transport_table(const LabReport& report) {
    Table table;
    table.title = "Transports";
    // "asked for" says nothing to the one who has asked.
    const bool has_reasons = std::ranges::any_of(report.comms, [](const CommRecord& comm) {
        return !comm.why.empty() && comm.why != "asked for";
    });
    table.columns = {{"backend", false}, {"hosts", true},       {"per host", true},
                     {"library", false}, {"data go by", false}, {"made in", true}};
    if (has_reasons) table.columns.push_back({"chosen because", false});
    if (std::ranges::any_of(report.comms, &CommRecord::oversubscribed))
        table.note = "* more ranks than CPUs (with GPUs: than GPUs) on a host.";
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
    table.title = "What was used, and why not";
    table.columns = {{"backend", false}, {"what", false}, {"used", false}, {"in", false}};
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
    table.title = "Failed";
    table.columns = {{"what", false},    {"backend", false},  {"hosts", true},
                     {"per host", true}, {"exit code", true}, {"error", false}};
    for (const FailureRecord& failure : report.failures)
        table.rows.push_back({failure.what, failure.backend, std::to_string(failure.hosts),
                              std::to_string(failure.slots_per_host),
                              std::to_string(failure.exit_code), failure.error});
    return table;
}

Table skipped_table(const LabReport& report) {
    Table table;
    table.title = "Not measured";
    table.columns = {{"why", false}};
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

std::string shape_text(const ShapeRecord& shape) {
    return fmt::format("{} host{} x {} rank{}", shape.hosts, shape.hosts == 1 ? "" : "s",
                       shape.slots_per_host, shape.slots_per_host == 1 ? "" : "s");
}

std::string subject_of(const RowRecord& row) {
    return fmt::format("{} of {}{}", row.op, row.dtype, row.in_place ? ", in place" : "");
}

std::string label_of(string_view backend, string_view compression) {
    std::string label(backend);
    if (!compression.empty() && compression != "none" && compression != "parallel")
        label.append(" ").append(compression);
    return label;
}

}  // namespace dtrun::lab
