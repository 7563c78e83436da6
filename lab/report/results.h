#pragma once

#include "base/result.h"
#include "lab/records.h"
#include "lab/report/words.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

/// A run that failed, or whose results are missing or cannot be read.
struct FailureRecord : ShapeRecord {
    std::string what;  ///< "facts", "sweep", "pairs", "train" and the algorithm, "script"
    int exit_code = 0;
    std::string error;

    template <class Failure, class Visit>
    static void fields(Failure& it, Visit&& visit) {
        ShapeRecord::fields(it, visit);
        visit("what", it.what);
        visit("exit_code", it.exit_code);
        visit("error", it.error);
    }
};

/// Everything that `dtrun bench` has found.
struct LabReport {
    static constexpr int kVersion = 1;
    std::string dtrun;                  ///< its version
    std::string started;                ///< "2025-01-31 13:45:00 UTC"
    std::string command;                ///< what was typed
    std::string title;                  ///< --title; empty: none
    double line_rate_mbit = kUnknown;   ///< --line-rate
    double target_accuracy = kUnknown;  ///< --target-accuracy, 0..1
    double seconds = 0;                 ///< that it took
    bool interrupted = false;
    std::vector<HostRecord> hosts;
    std::vector<CommRecord> comms;
    std::vector<RowRecord> rows;
    std::vector<PairRecord> pairs;
    std::vector<TrainRecord> train;
    std::vector<FailureRecord> failures;
    std::vector<std::string> skipped;  ///< backends and runs that were left out, and why: one each
    Language language = Language::english;  ///< of what is made of it; not in its file

    const ReportWords& words() const { return words_of(language); }

    /// Whether a result was wrong or a run failed.
    bool failed() const;

    /// In the order of the file: what is short, then the lists.
    template <class Report, class Visit>
    static void fields(Report& it, Visit&& visit) {
        visit("dtrun", it.dtrun);
        visit("started", it.started);
        visit("command", it.command);
        visit("title", it.title);
        visit("seconds", it.seconds);
        visit("line_rate_mbit", it.line_rate_mbit);
        visit("target_accuracy", it.target_accuracy);
        visit("interrupted", it.interrupted);
        visit("host_facts", it.hosts);
        visit("comms", it.comms);
        visit("rows", it.rows);
        visit("pairs", it.pairs);
        visit("train", it.train);
        visit("failures", it.failures);
        visit("skipped", it.skipped);
    }
};

/// Takes lines of the rank program, one JSON object each, into a report.
class RecordReader {
public:
    explicit RecordReader(LabReport& report) : report_(report) {}

    /// The kind of a line; `other` is what a library prints.
    enum class Line { host, comm, row, pair, train, steps, error, other };
    /// Errc: invalid_input (looks like one of ours, but cannot be read)
    Result<Line> take(std::string_view line);

    /// The texts of "error" lines, one a line; empty: none.
    const std::string& errors() const { return errors_; }
    /// What each rank has told of its steps.
    const std::vector<StepsRecord>& steps() const { return steps_; }

private:
    LabReport& report_;
    std::string errors_;
    std::vector<StepsRecord> steps_;
};

/// A report as JSON, one element a line, and back. Errc of parsing: invalid_input, which names what
/// is wrong.
std::string write_json(const LabReport& report);
Result<LabReport> parse_report(std::string_view text, std::string_view name);

/// Foreign text for a terminal or a table: what is neither printable nor a line end becomes a blank,
/// what is no UTF-8 a question mark.
std::string printable(std::string_view text);

}  // namespace dtrun::lab
