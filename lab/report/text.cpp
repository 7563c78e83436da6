#include "lab/report/text.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "lab/plan/plan.h"
#include "lab/report/fit.h"
#include "lab/report/pairs.h"
#include "lab/report/phrases.h"
#include "lab/report/picture.h"
#include "lab/report/training.h"
#include "lab/report/training_tables.h"

#include <fmt/format.h>
#include <algorithm>
#include <concepts>
#include <map>

namespace dtrun::lab {
namespace {

using std::string_view;

constexpr std::size_t kColumnsMax = 80;

std::string padded(string_view text, std::size_t width, bool right) {
    const std::string blanks(width - std::min(width, width_in_columns(text)), ' ');
    return right ? blanks + std::string(text) : std::string(text) + blanks;
}

std::vector<std::size_t> widths_of(const Table& table) {
    std::vector<std::size_t> widths;
    for (const Table::Column& column : table.columns)
        widths.push_back(width_in_columns(column.name));
    for (const auto& row : table.rows)
        for (std::size_t i = 0; i < row.size(); ++i)
            for (const string_view line : split(row[i], '\n'))
                widths[i] = std::max(widths[i], width_in_columns(line));
    return widths;
}

bool has_lines(const Table& table) {
    for (const auto& row : table.rows)
        for (const std::string& cell : row)
            if (cell.find('\n') != std::string::npos) return true;
    return false;
}

std::string without_end_blanks(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

/// \param gap  blanks between columns
std::string in_columns(const Table& table, const std::vector<std::size_t>& widths,
                       std::size_t gap) {
    const std::string blanks(gap, ' ');
    std::string heading = "  ";
    for (std::size_t i = 0; i < widths.size(); ++i)
        heading += padded(table.columns[i].name, widths[i], table.columns[i].is_number) + blanks;
    std::string text = without_end_blanks(heading);
    for (const auto& row : table.rows) {
        std::string line = "  ";
        for (std::size_t i = 0; i < row.size(); ++i)
            line += padded(row[i], widths[i], table.columns[i].is_number) + blanks;
        text += without_end_blanks(line);
    }
    return text;
}

/// Writes each cell as a line "name: cell".
std::string in_lines(const Table& table) {
    std::size_t middle = 0;
    for (const Table::Column& column : table.columns)
        middle = std::max(middle, width_in_columns(column.name));
    std::string text;
    for (const auto& row : table.rows) {
        if (&row != &table.rows.front()) text += "\n";
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string name =
                table.columns[i].name.empty() ? "" : table.columns[i].name + ":";
            bool is_first = true;
            for (const string_view line : split(row[i], '\n')) {
                text += two_columns(is_first ? name : "", line, middle + 6, kColumnsMax);
                is_first = false;
            }
        }
    }
    return text;
}

/// "# a text", in as many lines as it needs.
std::string as_comment(string_view text) {
    std::string lines = wrap(text, 2, kColumnsMax);
    for (std::size_t begin = 0; begin < lines.size(); begin = lines.find('\n', begin) + 1)
        lines[begin] = '#';
    return lines;
}

/// Writes a table of one column as a list, without its name, which says no more than the title.
std::string as_list(const Table& table) {
    std::string text;
    for (const auto& row : table.rows) {
        std::string lines = wrap(row.front(), 4, kColumnsMax);
        if (lines.size() > 4) lines[2] = '-';
        text += lines;
    }
    return text;
}

/// The environment: properties of each kind of hosts, one below the other.
std::string by_kinds(const Table& table) {
    std::size_t middle = 20;
    for (const auto& row : table.rows) middle = std::max(middle, width_in_columns(row[0]) + 7);
    std::string text;
    for (std::size_t kind = 1; kind < table.columns.size(); ++kind) {
        text += wrap(table.columns[kind].name, 2, kColumnsMax);
        for (const auto& row : table.rows) {
            bool is_first = true;
            for (const string_view line : split(row[kind], '\n')) {
                text += two_columns(is_first ? "  " + row[0] : "", line, middle, kColumnsMax);
                is_first = false;
            }
        }
    }
    return text;
}

std::string csv_text(string_view text) {
    std::string cell(text);
    if (!cell.empty() && string_view("=+-@").find(cell.front()) != string_view::npos)
        cell.insert(cell.begin(), '\'');
    if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
    std::string quoted = "\"";
    for (const char c : cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + "\"";
}

/// One line of a CSV file, by names of columns.
class CsvLine {
public:
    void operator()(string_view name, const std::string& text) {
        cells_[std::string(name)] = csv_text(text);
    }
    template <std::integral Number>
    void operator()(string_view name, Number number) {
        cells_[std::string(name)] = fmt::format("{}", number);
    }
    /// Lists have lines of their own.
    template <class Record>
    void operator()(string_view, const std::vector<Record>&) {}
    void operator()(string_view name, double number) {
        cells_[std::string(name)] = std::isfinite(number) ? fmt::format("{:.12g}", number) : "";
    }
    std::string text(const std::vector<std::string>& columns) const {
        std::string line;
        for (const std::string& column : columns) {
            const auto cell = cells_.find(column);
            if (&column != &columns.front()) line += ',';
            if (cell != cells_.end()) line += cell->second;
        }
        return line + "\r\n";
    }

private:
    std::map<std::string, std::string> cells_;
};

/// The names of columns, each once.
class CsvColumns {
public:
    template <class Value>
    void operator()(string_view name, const Value&) {
        if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
    }
    template <class Record>
    void operator()(string_view, const std::vector<Record>&) {}

    template <class Record>
    void add() {
        const Record record;
        Record::fields(record, *this);
    }

    std::vector<std::string> names{"type"};
};

std::vector<std::string> csv_columns() {
    CsvColumns columns;
    columns.add<RowRecord>();
    columns.add<PairRecord>();
    columns.add<TrainRecord>();
    columns.add<EpochRecord>();
    columns.add<FailureRecord>();
    return columns.names;
}

/// An epoch has the columns of its training, but for what is told at the end.
std::string csv_epoch(const TrainRecord& run, const EpochRecord& epoch,
                      const std::vector<std::string>& columns) {
    TrainRecord known;
    static_cast<ShapeRecord&>(known) = run;
    known.algorithm = run.algorithm;
    known.model = run.model;
    known.data = run.data;
    known.scaling = run.scaling;
    known.epochs = run.epochs;
    known.global_batch = run.global_batch;
    known.seed = run.seed;
    known.loss_scale = run.loss_scale;
    CsvLine line;
    TrainRecord::fields(known, line);
    EpochRecord::fields(epoch, line);
    line("type", std::string("epoch"));
    return line.text(columns);
}

std::string markdown_text(string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '\n')
            escaped += "<br>";
        else if (c == '<')
            escaped += "&lt;";
        else if (c == '&')
            escaped += "&amp;";
        else if (string_view("|\\`*_[]").find(c) != string_view::npos)
            escaped.append("\\").append(1, c);
        else
            escaped += c;
    }
    return escaped;
}

std::string markdown_table(const Table& whole) {
    const Table table = with_groups_as_rows(whole);
    std::string text = fmt::format("## {}\n\n", markdown_text(table.title));
    if (!table.note.empty()) text += markdown_text(table.note) + "\n\n";
    std::string rule = "|";
    text += "|";
    for (const Table::Column& column : table.columns) {
        text += fmt::format(" {} |", markdown_text(column.name));
        rule += column.is_number ? "---:|" : "---|";
    }
    text += "\n" + rule + "\n";
    for (const auto& row : table.rows) {
        text += "|";
        for (const std::string& cell : row) text += fmt::format(" {} |", markdown_text(cell));
        text += "\n";
    }
    return text + "\n";
}

/// Shortens the names of columns, which leaves room for cells.
Table with_short_names(Table table, const ReportWords& words) {
    const std::pair<string_view, string_view> names[] = {
        {words.per_host, words.per_host_short},
        {words.ranks_per_host, words.per_host_short},
        {words.gpus_per_host, words.per_host_short},
        {words.time_per_step, words.step_short},
        {words.efficiency, words.efficiency_short},
        {words.communication, words.communication_short}};
    for (Table::Column& column : table.columns)
        for (const auto& [name, short_name] : names)
            if (column.name == name) {
                column.name = short_name;
                break;
            }
    return table;
}

std::string failures_text(const LabReport& report) {
    const ReportWords& words = report.words();
    std::string text;
    for (const FailureRecord& failure : report.failures) {
        if (text.empty()) text = fmt::format("\n{}\n", words.failed);
        const std::string title = failure_title(failure, report.language);
        text += fmt::format("  {}\n", failure.exit_code == 0
                                          ? title
                                          : filled(words.failed_with, title, failure.exit_code));
        for (const string_view line : split(failure.error, '\n'))
            text += wrap(line, 4, kColumnsMax);
    }
    return text;
}

}  // namespace

std::string time_left(std::size_t done, std::size_t total, double spent, Language language) {
    if (done == 0) return "";
    const ReportWords& words = words_of(language);
    const double left = spent / static_cast<double>(done) * static_cast<double>(total - done);
    return left < 90 ? filled(words.seconds_left, fmt::format("{:.0f}", left))
                     : filled(words.minutes_left, fmt::format("{:.0f}", left / 60));
}

std::string failure_title(const FailureRecord& failure, Language language) {
    const ReportWords& words = words_of(language);
    if (failure.what == "facts")
        return filled(
            words.asking,
            filled(failure.hosts == 1 ? words.one_host_shape : words.hosts_shape, failure.hosts));
    const std::string what = fact_in(language, failure.what);
    if (failure.backend.empty()) return what;
    return filled(words.run_of, what, backend_name_in(words, failure.backend),
                  shape_text(failure, words));
}

std::string TerminalRows::row(const RowRecord& row) {
    std::string what = row.op + " " + row.dtype;
    if (row.in_place) what = filled(words_.in_place, what);
    if (row.compression != "none" && !row.compression.empty())
        what = filled(words_.compressed_to, what, row.compression);
    std::string text;
    if (what != what_ || shape_ != row) {
        text = fmt::format("\n# {}: {}{}{}\n", row.backend, shape_text(row, words_), words_.comma,
                           what);
        text += fmt::format("#{:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>7} {:>5}\n",
                            words_.size_bytes, words_.count, words_.time_us, "p50", "p99", "algbw",
                            "busbw", words_.rel_error_short, words_.wrong_short);
        what_ = std::move(what);
        shape_ = row;
    }
    const std::string error = row.rel_err == 0             ? "0"
                              : std::isfinite(row.rel_err) ? fmt::format("{:.1e}", row.rel_err)
                                                           : "-";
    const std::string wrong = std::isfinite(row.wrong) ? fmt::format("{:.0f}", row.wrong) : "-";
    return text + fmt::format("{:>10} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>7} {:>5}\n", row.bytes,
                              row.count, short_number(row.t_mean_us), short_number(row.t_p50_us),
                              short_number(row.t_p99_us), bandwidth_text(row.algbw_GBps),
                              bandwidth_text(row.busbw_GBps), error, wrong);
}

std::string TerminalRows::train(const TrainRecord& train) {
    constexpr auto kColumns = "{} {:<18} {:<8} {:>9} {:>9} {:>10} {:>9} {:>9}\n";
    std::string text;
    const std::string what = filled(words_.with_seed, training_title(train, words_), train.seed);
    if (what != what_) {
        text = "\n" + as_comment(what) +
               fmt::format(kColumns, "#", words_.algorithm, words_.backend, words_.hosts_by_ranks,
                           words_.step_ms, words_.samples_column, words_.accuracy, words_.time);
        what_ = what;
    }
    const bool is_lone = train.is_serial() && !train.is_on_gpu();
    return text + fmt::format(kColumns, " ", algorithm_name(train.algorithm, words_),
                              backend_name_in(words_, is_lone ? "none" : train.backend),
                              fmt::format("{} x {}", train.hosts, train.slots_per_host),
                              short_number(train.step_ms), short_number(train.samples_per_s),
                              percent(train.accuracy), short_time(train.seconds));
}

std::string plain_text(const Table& whole) {
    const Table table = with_groups_as_rows(whole);
    std::string text = table.title + "\n";
    if (!table.note.empty()) text += wrap(table.note, 2, kColumnsMax);
    if (!table.columns.empty() && table.columns.front().name.empty()) return text + by_kinds(table);
    if (table.columns.size() == 1) return text + as_list(table);
    const std::vector<std::size_t> widths = widths_of(table);
    for (const std::size_t gap : {2u, 1u}) {
        std::size_t width = 2;
        for (const std::size_t each : widths) width += each + gap;
        if (width - gap <= kColumnsMax && !has_lines(table))
            return text + in_columns(table, widths, gap);
    }
    return text + in_lines(table);
}

std::string terminal_summary(const LabReport& measured, bool explain) {
    const LabReport report = told_in_its_language(measured);
    const ReportWords& words = report.words();
    std::vector<Table> tables{environment_table(report)};
    for (Table& table : training_tables(report))
        tables.push_back(with_short_names(std::move(table), words));
    tables.push_back(with_short_names(fit_table(report), words));
    for (Table& table : pair_tables(report)) tables.push_back(std::move(table));
    if (explain) tables.push_back(with_short_names(transport_table(report), words));
    if (explain) tables.push_back(explain_table(report));
    if (explain) tables.push_back(skipped_table(report));
    std::string text;
    for (const Table& table : tables)
        if (!table.empty()) text += "\n" + plain_text(table);
    return text + failures_text(report);
}

std::string write_csv(const LabReport& report) {
    const std::vector<std::string> columns = csv_columns();
    std::string text;
    for (const std::string& column : columns) text += (text.empty() ? "" : ",") + column;
    text += "\r\n";
    const auto add = [&]<class Record>(const char* type, const std::vector<Record>& records) {
        for (const Record& record : records) {
            CsvLine line;
            line("type", std::string(type));
            Record::fields(record, line);
            text += line.text(columns);
        }
    };
    add(RowRecord::kType, report.rows);
    add(PairRecord::kType, report.pairs);
    add(TrainRecord::kType, report.train);
    for (const TrainRecord& run : report.train)
        for (const EpochRecord& epoch : run.by_epoch) text += csv_epoch(run, epoch, columns);
    add(ErrorRecord::kType, report.failures);
    return text;
}

MarkdownReport write_markdown(const LabReport& measured, std::string_view pictures) {
    const LabReport report = told_in_its_language(measured);
    const ReportWords& words = report.words();
    MarkdownReport made;
    std::string& text = made.text;
    text =
        fmt::format("# {}\n\n{}{}", markdown_text(report_heading(report)),
                    filled(words.made_by, report.dtrun, report.started, short_time(report.seconds)),
                    words.full_stop);
    if (report.interrupted) text += fmt::format(" **{}**", words.interrupted);
    text += fmt::format("\n\n{}\n\n    {}\n\n", words.command, report.command);
    std::vector<FigureGroup> figures;
    if (!pictures.empty()) figures = report_figures(report);
    for (const Table& table : all_tables(report)) {
        text += markdown_table(table);
        for (const FigureGroup& group : figures) {
            if (group.below != table.title) continue;
            made.pictures.push_back(picture_of(group));
            text += fmt::format("![{}](<{}-{}.svg>)\n\n", markdown_text(group.title), pictures,
                                made.pictures.size());
        }
    }
    text.pop_back();
    return made;
}

}  // namespace dtrun::lab
