#include "lab/report/html.h"

#include "base/strings.h"
#include "lab/plan/plan.h"
#include "lab/report/figures.h"
#include "lab/report/fit.h"
#include "lab/report/pairs.h"
#include "lab/report/phrases.h"
#include "lab/report/training_tables.h"

#include <fmt/format.h>
#include <algorithm>
#include <string_view>

namespace dtrun::lab {
namespace {

using std::string_view;

/// Line colours keep 3:1 to their background, and differ in lightness too.
constexpr string_view kStyle = R"(
:root{--bg:#fff;--panel:#f5f7f9;--ink:#1b2026;--soft:#57606b;--rule:#d5dbe1;--grid:#e3e7eb;
--good:#0a6b44;--good-bg:#e2f4ea;--bad:#a3241b;--bad-bg:#fde8e5;
--s0:#0b63b5;--s1:#c24a00;--s2:#00795a;--s3:#9c3a8b;--s4:#7a6200;--s5:#3d4db8;--s6:#b3124f;--s7:#4a5560;
color-scheme:light dark}
@media screen and (prefers-color-scheme:dark){:root{--bg:#14181d;--panel:#1c2229;--ink:#e7ebef;
--soft:#a2adb8;--rule:#39424c;--grid:#29313a;--good:#7bd8a8;--good-bg:#143526;--bad:#ff9c91;
--bad-bg:#43201d;--s0:#6db5ff;--s1:#ff9a5c;--s2:#4ed1a5;--s3:#e295d6;--s4:#e0c24e;--s5:#a3adff;
--s6:#ff86ad;--s7:#b9c3cd}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,"Segoe UI",Roboto,
"Helvetica Neue",Arial,"Noto Sans CJK SC","PingFang SC","Microsoft YaHei","WenQuanYi Zen Hei",sans-serif}
main{max-width:70rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .25rem;letter-spacing:-.01em}
h2{font-size:1.3rem;margin:3rem 0 .25rem;padding-top:1rem;border-top:1px solid var(--rule)}
p{margin:.25rem 0 1rem;max-width:46rem;overflow-wrap:anywhere}
.soft{color:var(--soft)}
code{font:.85em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.command{display:block;background:var(--panel);border:1px solid var(--rule);border-radius:6px;
padding:.6rem .8rem;overflow-wrap:anywhere;white-space:pre-wrap}
.chip{display:inline-block;border-radius:999px;padding:.1rem .75rem;font-weight:600;
font-size:.9rem;color:var(--good);background:var(--good-bg)}
.chip.bad{color:var(--bad);background:var(--bad-bg)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.75rem;margin:1.5rem 0}
.card{background:var(--panel);border:1px solid var(--rule);border-radius:8px;padding:.8rem 1rem}
.card b{display:block;font-size:1.45rem;line-height:1.25;font-variant-numeric:tabular-nums}
.card span{display:block;color:var(--soft);font-size:.85rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.5rem 2rem}
figure{margin:0;min-width:0;break-inside:avoid}
figcaption{font-weight:600;font-size:.95rem;margin-bottom:.25rem}
svg{display:block;overflow:visible;width:100%;height:auto;max-width:40rem;font-size:12.5px;font-family:inherit}
svg .tick{fill:var(--soft);font-size:11.5px;font-variant-numeric:tabular-nums}
svg .name{fill:var(--soft)}
svg .grid{stroke:var(--grid)}
svg .axis{stroke:var(--soft)}
svg .line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
svg .whisker{stroke:currentColor;stroke-width:1.5;opacity:.45}
svg .leader{fill:none;stroke:currentColor;opacity:.4}
svg .label{fill:currentColor;font-weight:600}
svg .heat{fill:var(--s1)}
svg .value{fill:var(--ink);font-size:11.5px;font-variant-numeric:tabular-nums}
svg .ideal,svg .note{color:var(--soft)}
svg .ideal .line{stroke-width:1.5;stroke-dasharray:7 4}
svg .hollow{fill:var(--bg);stroke:currentColor;stroke-width:1.5}
.s0{color:var(--s0)}.s1{color:var(--s1)}.s2{color:var(--s2)}.s3{color:var(--s3)}
.s4{color:var(--s4)}.s5{color:var(--s5)}.s6{color:var(--s6)}.s7{color:var(--s7)}
.wrap{overflow:auto;border:1px solid var(--rule);border-radius:8px;margin:.75rem 0}
.tall{max-height:44rem}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.4rem .75rem;text-align:left;vertical-align:top}
th{font-weight:600;word-break:keep-all;background:var(--panel);vertical-align:bottom}
thead{position:sticky;top:0}
th.group{text-align:center}
tbody th{white-space:nowrap}
tr+tr>*{border-top:1px solid var(--grid)}
td:first-child,tbody th,thead tr:first-child th:first-child{position:sticky;left:0}
td:first-child{background:var(--bg)}
.number{text-align:right}
td.number,td:first-child{white-space:nowrap}
.lines{white-space:pre-line;min-width:16rem}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font:.85em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
td.good{color:var(--good);font-weight:600}
td.bad{color:var(--bad);font-weight:600}
@media(max-width:32rem){main{padding:1.25rem .9rem 3rem}h1{font-size:1.5rem}svg{font-size:14px}
svg .tick,svg .label{font-size:13px}}
@media print{body{font-size:10pt}main{max-width:none;padding:0}.wrap{max-height:none;overflow:visible}
.figures{grid-template-columns:1fr 1fr}h2,h2+p,h2+p+p{break-after:avoid}h2{margin-top:1.5rem}tr{break-inside:avoid}
thead{position:static;display:table-header-group}}
)";

std::string times_sign(std::string text) {
    for (std::size_t at = 0; (at = text.find(" x ", at)) != std::string::npos; at += 4)
        text.replace(at, 3, " × ");
    return text;
}

std::string cell_text(const std::string& cell) {
    // Columns inside of a cell are a drawing, such as a matrix of links.
    const bool is_drawing =
        cell.find('\n') != std::string::npos && cell.find("  ") != std::string::npos;
    if (is_drawing) return "<pre>" + html_text(cell) + "</pre>";
    return html_text(times_sign(cell));
}

string_view class_of(const Table::Column& column, const std::string& cell,
                     const ReportWords& words) {
    if (column.name == words.wrong && cell != "0" && cell != "-") return "number bad";
    if (column.is_number) return "number";
    if (cell == words.faster) return "good";
    if (cell == words.slower) return "bad";
    return cell.find('\n') == std::string::npos ? "" : "lines";
}

std::string head_cell(const std::string& attributes, const std::string& name) {
    return fmt::format("<th{}>{}</th>", attributes, html_text(name));
}

/// Names of columns; with groups in two lines, of which the first has their names.
std::string table_head(const Table& table) {
    const bool has_groups = std::ranges::any_of(
        table.columns, [](const Table::Column& column) { return !column.group.empty(); });
    std::string above;
    std::string below;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        const Table::Column& column = table.columns[i];
        const std::string side = column.is_number ? " class=\"number\"" : "";
        if (column.group.empty()) {
            above +=
                head_cell((has_groups ? " scope=\"col\" rowspan=\"2\"" : " scope=\"col\"") + side,
                          column.name);
            continue;
        }
        below += head_cell(" scope=\"col\"" + side, column.name);
        if (i > 0 && table.columns[i - 1].group == column.group) continue;
        const auto width = std::ranges::count(table.columns, column.group, &Table::Column::group);
        above += head_cell(fmt::format(" scope=\"colgroup\" colspan=\"{}\" class=\"group\"", width),
                           column.group);
    }
    return fmt::format("<thead><tr>{}</tr>{}</thead>", above,
                       has_groups ? "\n<tr>" + below + "</tr>" : "");
}

std::string table_html(const Table& table, const ReportWords& words) {
    constexpr std::size_t kTall = 40;  // rows, beyond which a table scrolls by itself
    std::string text =
        fmt::format("<div class=\"wrap{}\"", table.rows.size() > kTall ? " tall" : "");
    text += " tabindex=\"0\" role=\"region\" aria-label=\"" + html_text(table.title) +
            "\"><table>\n" + table_head(table) + "\n<tbody>\n";
    const bool has_heads = !table.columns.empty() && table.columns.front().name.empty();
    for (const auto& row : table.rows) {
        text += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i) {
            const string_view name = class_of(table.columns[i], row[i], words);
            const std::string attribute = name.empty() ? "" : fmt::format(" class=\"{}\"", name);
            text += has_heads && i == 0
                        ? fmt::format("<th scope=\"row\">{}</th>", html_text(row[i]))
                        : fmt::format("<td{}>{}</td>", attribute, cell_text(row[i]));
        }
        text += "</tr>\n";
    }
    return text + "</tbody></table></div>\n";
}

std::string section(string_view title, string_view lead) {
    std::string text = fmt::format("<h2>{}</h2>\n", html_text(times_sign(std::string(title))));
    if (!lead.empty()) text += fmt::format("<p class=\"soft\">{}</p>\n", html_text(lead));
    return text;
}

std::string table_section(const Table& table, const ReportWords& words) {
    if (table.empty()) return "";
    return section(table.title, table.note) + table_html(table, words);
}

std::string figures_html(const FigureGroup& figures) {
    std::string text = "<div class=\"figures\">\n";
    for (const Figure& figure : figures.figures)
        text += fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n",
                            html_text(times_sign(figure.title)), chart_svg(figure.chart));
    return text + "</div>\n";
}

std::string pairs_section(const PairMatrix& matrix, const ReportWords& words) {
    std::string text = section(pairs_title(matrix, words), words.pairs_note);
    text +=
        fmt::format("<p class=\"soft\">{}</p>\n<div class=\"figures\">\n", words.stronger_slower);
    for (const HeatMap& map : heat_maps(matrix, words))
        text += fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n",
                            html_text(map.title), map.svg);
    return text + "</div>\n";
}

std::string card(const std::string& number, const std::string& what) {
    return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", html_text(number),
                       html_text(times_sign(what)));
}

/// The best of each backend, at a glance.
std::string cards(const LabReport& report) {
    const ReportWords& words = report.words();
    std::string text;
    std::vector<std::string> backends;
    for (const RowRecord& row : report.rows)
        if (std::ranges::find(backends, row.backend) == backends.end())
            backends.push_back(row.backend);
    for (const std::string& backend : backends) {
        const RowRecord* widest = nullptr;
        for (const RowRecord& row : report.rows) {
            if (row.backend != backend || !std::isfinite(row.busbw_GBps) || row.wrong > 0) continue;
            if (row.compression != "none" && !row.compression.empty()) continue;
            if (widest == nullptr || row.busbw_GBps > widest->busbw_GBps) widest = &row;
        }
        if (widest == nullptr || widest->busbw_GBps <= 0) continue;
        text += card(bandwidth_text(widest->busbw_GBps) + " GB/s",
                     filled(words.most_bandwidth, backend, widest->op, shape_text(*widest, words),
                            short_bytes(static_cast<double>(widest->bytes))));
    }
    ScalingPoint best;
    for (const char* const scaling : {"strong", "weak"})
        for (const ScalingPoint& point : scaling_of(report, "parallel", scaling))
            if (point.run.ranks > 1 && !(point.speedup <= best.speedup)) best = point;
    if (std::isfinite(best.speedup))
        text += card(fmt::format("{:.2f}×", best.speedup),
                     filled(words.most_speedup, backend_name_in(words, best.run.backend),
                            shape_text(best.run, words)));
    return text.empty() ? "" : "<div class=\"cards\">\n" + text + "</div>\n";
}

std::string chips(const LabReport& report) {
    const ReportWords& words = report.words();
    const auto wrong =
        std::ranges::count_if(report.rows, [](const RowRecord& row) { return row.wrong > 0; });
    const auto chip = [](string_view text, bool bad) {
        return fmt::format("<span class=\"chip{}\">{}</span> ", bad ? " bad" : "", text);
    };
    std::string text;
    if (report.interrupted) text += chip(words.interrupted, true);
    if (wrong > 0) text += chip(filled(words.results_wrong, wrong, report.rows.size()), true);
    if (!report.failures.empty())
        text += chip(filled(report.failures.size() == 1 ? words.run_failed : words.runs_failed,
                            report.failures.size()),
                     true);
    const bool checked =
        std::ranges::any_of(report.rows, [](const RowRecord& row) { return row.wrong == 0; });
    if (text.empty()) text = chip(checked ? words.all_right : words.all_ended, false);
    return "<p>" + text + "</p>\n";
}

std::string page(string_view title, const std::string& body, Language language) {
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</"
        "html>\n",
        language == Language::chinese ? "zh-CN" : "en", html_text(title), kStyle, body);
}

std::string names_of(const LabReport& report) {
    std::vector<std::string> names;
    for (const HostRecord& host : report.hosts)
        if (!host.name.empty()) names.push_back(host.name);
    return names.empty() ? "" : filled(report.words().on_names, listed(names, report.language));
}

}  // namespace

std::string write_html(const LabReport& measured) {
    const LabReport report = told_in_its_language(measured);
    const ReportWords& words = report.words();
    const std::string heading = report_heading(report);
    std::string body = fmt::format(
        "<h1>{}</h1>\n<p class=\"soft\">{}</p>\n", html_text(heading),
        html_text(filled(words.made_by, report.dtrun, report.started, short_time(report.seconds))));
    body += chips(report);
    body += fmt::format("<code class=\"command\">{}</code>\n", html_text(report.command));
    body += cards(report);
    body += table_section(failure_table(report), words);
    const std::vector<FigureGroup> figures = report_figures(report);
    const std::vector<Table> sweeps = sweep_tables(report);
    const auto figures_of = [&figures](string_view table) {
        const auto found = std::ranges::find(figures, table, &FigureGroup::below);
        return found == figures.end() ? nullptr : &*found;
    };
    for (const Table& table : training_tables(report)) {
        const FigureGroup* const curves = figures_of(table.title);
        body += table_section(table, words);
        if (curves != nullptr) body += section(curves->title, curves->lead) + figures_html(*curves);
    }
    for (const Table& table : sweeps) {
        const FigureGroup* const plots = figures_of(table.title);
        body += section(table.title, plots != nullptr ? plots->lead : "");
        if (plots != nullptr) body += figures_html(*plots);
        body += fmt::format("<p class=\"soft\">{}</p>\n", html_text(table.note)) +
                table_html(table, words);
    }
    body += table_section(fit_table(report), words);
    for (const PairMatrix& matrix : pair_matrices(report)) body += pairs_section(matrix, words);
    for (const Table& table : {environment_table(report), transport_table(report),
                               explain_table(report), skipped_table(report)})
        body += table_section(table, words);
    return page(heading, body, report.language);
}

std::string write_html(const Comparison& comparison, const LabReport& before,
                       const LabReport& after) {
    const ReportWords& words = words_of(comparison.language);
    std::string body = fmt::format("<h1>{}</h1>\n", words.two_compared);
    const bool worse = comparison.count(ComparedRow::Mark::slower) > 0;
    body += fmt::format("<p><span class=\"chip{}\">{}</span></p>\n", worse ? " bad" : "",
                        html_text(comparison_text(comparison)));
    for (const auto& [text, report] :
         {std::pair(words.report_before, &before), {words.report_after, &after}})
        body +=
            fmt::format("<p class=\"soft\">{}</p>\n",
                        html_text(filled(text, report->dtrun, report->started, names_of(*report))));
    const FigureGroup figures = comparison_figures(comparison);
    if (!figures.figures.empty())
        body += section(figures.title, figures.lead) + figures_html(figures);
    body += table_section(comparison_table(comparison), words);
    return page(words.comparison_page, body, comparison.language);
}

}  // namespace dtrun::lab
