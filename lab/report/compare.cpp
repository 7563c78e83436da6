#include "lab/report/compare.h"

#include "lab/plan/plan.h"
#include "lab/report/phrases.h"
#include "lab/report/training.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <map>

namespace dtrun::lab {
namespace {

using std::string_view;

constexpr double kNoiseMin = 0.03;
constexpr double kTrainingNoise = 0.05;

/// The names and the shape of a row, without measurements.
ComparedRow named(const RowRecord& row, const ReportWords& words) {
    ComparedRow named;
    static_cast<ShapeRecord&>(named) = row;
    const bool in_full = row.compression.empty() || row.compression == "none";
    named.what =
        fmt::format("{} {}{}{} {}", row.op, row.dtype, in_full ? "" : " ",
                    in_full ? "" : row.compression, short_bytes(static_cast<double>(row.bytes)));
    if (row.in_place) named.what = filled(words.in_place, named.what);
    named.group = subject_of(row, words);
    if (!in_full) named.compression = row.compression;
    named.bytes = row.bytes;
    return named;
}

ComparedRow named(const TrainRecord& run, const ReportWords& words) {
    ComparedRow named;
    static_cast<ShapeRecord&>(named) = run;
    named.what = filled(words.compared_training, run.model, run.global_batch,
                        algorithm_name(run.algorithm, words));
    if (run.scaling == "weak" && run.ranks > 1) named.what = filled(words.weak_of, named.what);
    if (run.loss_scale != 1)
        named.what.append(words.comma)
            .append(filled(words.loss_scale, fmt::format("{:g}", run.loss_scale)));
    named.group = training_title(run, words);
    if (run.algorithm != "parallel") named.compression = run.algorithm;
    return named;
}

/// One measurement of either kind.
struct Measured {
    ComparedRow row;
    double time_us;
    double noise;
};

std::vector<Measured> measured_in(const LabReport& report, const ReportWords& words) {
    std::vector<Measured> all;
    for (const RowRecord& row : report.rows)
        all.push_back({named(row, words), row.t_p50_us, noise_of(row)});
    for (const TrainGroup& group : train_groups(report))
        all.push_back({named(group.run, words), group.run.step_ms * 1'000, kTrainingNoise});
    std::erase_if(all, [](const Measured& each) { return !(each.time_us > 0); });
    return all;
}

using Key = std::pair<ShapeRecord, std::string>;

std::string time_text(double time_us) {
    if (time_us >= 1e6) return short_number(time_us / 1e6) + " s";
    return time_us >= 1e3 ? short_number(time_us / 1e3) + " ms" : short_number(time_us) + " us";
}

string_view mark_text(ComparedRow::Mark mark, const ReportWords& words) {
    switch (mark) {
        case ComparedRow::Mark::faster:
            return words.faster;
        case ComparedRow::Mark::slower:
            return words.slower;
        case ComparedRow::Mark::same:
            break;
    }
    return "=";
}

}  // namespace

int Comparison::count(ComparedRow::Mark mark) const {
    return static_cast<int>(std::ranges::count(rows, mark, &ComparedRow::mark));
}

double noise_of(const RowRecord& row) {
    if (!(row.t_p50_us > 0)) return kNoiseMin;
    double spread = 0;
    const double below = (row.t_p50_us - row.t_min_us) / row.t_p50_us;
    const double above = (row.t_p99_us - row.t_p50_us) / row.t_p50_us;
    if (std::isfinite(below) && std::isfinite(above)) spread = std::min(below, above);
    return std::max(spread, kNoiseMin);
}

Comparison compare_reports(const LabReport& before, const LabReport& after) {
    Comparison comparison;
    comparison.language = after.language;
    const ReportWords& words = after.words();
    std::map<Key, Measured> known;
    for (const Measured& each : measured_in(before, words))
        known.insert_or_assign({each.row, each.row.what}, each);
    std::map<Key, bool> seen;
    for (const Measured& now : measured_in(after, words)) {
        const Key key{now.row, now.row.what};
        if (!seen.try_emplace(key, true).second) continue;
        const auto then = known.find(key);
        if (then == known.end()) {
            ++comparison.only_after;
            continue;
        }
        ComparedRow& row = comparison.rows.emplace_back(now.row);
        row.before_us = then->second.time_us;
        row.after_us = now.time_us;
        row.speed = row.before_us / row.after_us;
        row.noise = std::hypot(then->second.noise, now.noise);
        if (row.speed > 1 + row.noise) row.mark = ComparedRow::Mark::faster;
        if (1 / row.speed > 1 + row.noise) row.mark = ComparedRow::Mark::slower;
    }
    comparison.only_before =
        static_cast<int>(known.size()) - static_cast<int>(comparison.rows.size());
    return comparison;
}

Table comparison_table(const Comparison& comparison) {
    Table table;
    const ReportWords& words = words_of(comparison.language);
    table.title = words.comparison;
    table.note = words.comparison_note;
    table.columns =
        columns_of({words.what, words.by, ""},
                   {words.what, words.by, words.before, words.after, words.speed, words.noise, ""});
    std::vector<const ComparedRow*> rows;
    for (const ComparedRow& row : comparison.rows) rows.push_back(&row);
    std::ranges::stable_sort(rows, [](const ComparedRow* a, const ComparedRow* b) {
        const bool a_marked = a->mark != ComparedRow::Mark::same;
        const bool b_marked = b->mark != ComparedRow::Mark::same;
        if (a_marked != b_marked) return a_marked;
        return a_marked && std::abs(std::log(a->speed)) > std::abs(std::log(b->speed));
    });
    for (const ComparedRow* const row : rows)
        table.rows.push_back({row->what,
                              fmt::format("{} {}x{}", backend_name_in(words, row->backend),
                                          row->hosts, row->slots_per_host),
                              time_text(row->before_us), time_text(row->after_us),
                              fmt::format("{:.2f}", row->speed), percent(row->noise, 0),
                              std::string(mark_text(row->mark, words))});
    return table;
}

std::string comparison_text(const Comparison& comparison) {
    const ReportWords& words = words_of(comparison.language);
    std::string text = filled(words.compared_counts, comparison.count(ComparedRow::Mark::faster),
                              comparison.count(ComparedRow::Mark::slower),
                              comparison.count(ComparedRow::Mark::same));
    if (comparison.only_before > 0) text += filled(words.only_in_first, comparison.only_before);
    if (comparison.only_after > 0) text += filled(words.only_in_second, comparison.only_after);
    return text;
}

}  // namespace dtrun::lab
