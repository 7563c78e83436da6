#include "lab/run/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "base/terminal.h"
#include "base/text_layout.h"
#include "lab/child.h"
#include "lab/names.h"
#include "lab/report/html.h"
#include "lab/report/phrases.h"
#include "lab/report/steps.h"
#include "lab/report/text.h"
#include "lab/report/training.h"
#include "lab/run/targets.h"
#include "launcher/plan/exit_code.h"

#include <dtrun_version.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <limits>
#include <set>

namespace dtrun::lab {
namespace {

using std::string_view;

constexpr int kExitFailed = 1;
constexpr std::chrono::milliseconds kSweepSilence{300'000};
constexpr std::chrono::milliseconds kTrainSilence{3'600'000};
constexpr std::size_t kRankErrorBytesMax = 16u << 10;
constexpr std::size_t kFailureBytesMax = 3'000;

std::string now_text() {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    char text[64];
    return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

/// The environment of runs: all variables but torchrun's (PET_...), which are not meant for them.
std::vector<std::string> environment_of_runs(plan::EnvironmentView environment) {
    std::vector<std::string> kept;
    for (const auto& variable : environment) {
        const string_view text(variable);
        if (!text.starts_with("PET_") && !text.starts_with("TORCH_ELASTIC_SHUTDOWN_TIMEOUT="))
            kept.emplace_back(text);
    }
    return kept;
}

/// Whether a status means that a host failed, so that any other run on these hosts would fail, too.
bool is_of_hosts(int status) {
    return std::ranges::any_of(plan::kExitCodes, [status](const plan::ExitCodeRow& row) {
        return row.of_host && row.code == status;
    });
}

/// What a failed run has said last, in the lines of a screen. A traceback ends with what was wrong.
std::string last_lines(const std::string& errors) {
    constexpr std::size_t kLinesMax = 24;
    constexpr string_view kOurName = "dtrun: ";
    const std::string clean = printable(errors);
    std::vector<string_view> lines;
    for (string_view line : split(clean, '\n')) {
        if (line.starts_with(kOurName)) line.remove_prefix(kOurName.size());
        if (!trim(line).empty()) lines.push_back(line);
    }
    if (lines.size() > kLinesMax) lines.erase(lines.begin(), lines.end() - kLinesMax);
    return fmt::format("{}", fmt::join(lines, "\n"));
}

/// For the error of a program that has ended well.
std::string printed_last(const std::string& errors) {
    const std::string lines = last_lines(errors);
    return lines.empty() ? "; it printed nothing" : ". Its last lines:\n" + lines;
}

/// Carries out one run after the other, and shows what they say.
class LabRunner {
public:
    explicit LabRunner(const LabJob& job)
        : job_(job),
          command_(job.command),
          options_(job.options),
          report_(as_wished({}, job.command)),
          screen_(screen_of(job.command)) {
        child_.path = "/proc/self/exe";
        child_.environment = environment_of_runs(job.environment);
    }

    int run() {
        const auto begin = Clock::now();
        report_.dtrun = DTRUN_VERSION;
        report_.started = now_text();
        report_.command = job_.typed;
        // Whether hosts and slots are enough does not depend on the backends that there are.
        const bool over = options_.oversubscribe;
        const auto possible = plan_runs(command_, job_.places, {"any"}, over);
        if (!possible) return complain_of(possible.error(), report_.language);
        ask_hosts(*possible);
        const auto backends = backends_of_runs();
        if (backends.empty() && signals_.received() == 0 && report_.failures.empty()) no_backend();
        const auto runs = plan_runs(command_, job_.places, backends, over);
        if (!runs) return complain_of(runs.error(), report_.language);
        measure(*runs);
        report_.interrupted = signals_.received() != 0;
        report_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        return finish();
    }

private:
    /// Asks all hosts that are needed; where some cannot be reached, those of the next smaller
    /// shape.
    void ask_hosts(const std::vector<LabRun>& possible) {
        std::set<int, std::greater<>> counts;
        for (const LabRun& each : possible) counts.insert(each.hosts);
        const bool tries = command_.backends.empty() && command_.program.empty();
        const auto tried = tries ? backend_names() : std::vector<std::string>{};
        for (const int hosts : counts) {
            carry_out(facts_run(command_, hosts, tried));
            if (signals_.received() != 0 || hosts < hosts_end_) return;
        }
    }

    void measure(const std::vector<LabRun>& runs) {
        total_ = runs.size();
        measured_since_ = Clock::now();
        std::size_t too_many_hosts = 0;
        std::size_t trainings = 0;
        for (const LabRun& each : runs) {
            if (signals_.received() != 0) return;
            ++number_;
            if (each.hosts >= hosts_end_)
                ++too_many_hosts;
            else if (each.kind == LabRun::Kind::train &&
                     training_fails_[computes_on_gpu(each.backend)])
                ++trainings;
            else
                carry_out(each);
        }
        if (too_many_hosts > 0)
            leave_out(fmt::format("{} on {} or more: not all of these hosts can run it",
                                  plural(too_many_hosts, "run"),
                                  plural(static_cast<std::size_t>(hosts_end_), "host")));
        if (trainings > 0)
            leave_out(plural(trainings, "training") +
                      " with several ranks: the serial one has failed already");
    }

    void leave_out(std::string what) {
        clear_progress();
        log::error("{}", filled(words_.left_out, told_in(report_.language, what)));
        report_.skipped.push_back(std::move(what));
    }

    void show(string_view text) {
        clear_progress();
        static_cast<void>(write_all(screen_, text));
    }

    void progress(const LabRun& run) {
        const bool has_line = ::isatty(STDERR_FILENO) == 1 && !is_terminal_dumb();
        if (!has_line || options_.verbosity == log::Level::quiet) return;
        static_cast<void>(write_all(STDERR_FILENO, "\r\x1b[K" + progress_text(run)));
        has_progress_ = true;
    }
    std::string progress_text(const LabRun& run) const {
        if (run.kind == LabRun::Kind::facts) return std::string(words_.asking_hosts) + " ...";
        std::string subject;
        if (run.kind == LabRun::Kind::pairs)
            subject = words_.progress_pairs;
        else if (run.kind == LabRun::Kind::script)
            subject = words_.progress_program;
        else if (!run.algorithm.empty())
            subject = filled(words_.progress_training, algorithm_name(run.algorithm, words_));
        const std::chrono::duration<double> spent = Clock::now() - measured_since_;
        return filled(words_.progress, number_, total_, subject,
                      backend_name_in(words_, run.backend), run.hosts, run.slots,
                      time_left(number_ - 1, total_, spent.count(), report_.language));
    }
    void clear_progress() {
        if (std::exchange(has_progress_, false))
            static_cast<void>(write_all(STDERR_FILENO, "\r\x1b[K"));
    }

    void carry_out(const LabRun& run) {
        progress(run);
        child_.words = launch_words(run, command_, job_.hostfile, job_.rank_program);
        child_.words.insert(child_.words.begin(), "dtrun");
        child_.silence_max =
            command_.timeout.value_or(run.is_program() ? kTrainSilence : kSweepSilence);
        RecordReader reader(report_);
        Heard heard;
        const Known known{report_.train.size(), report_.comms.size()};
        const auto ended = follow(reader, heard);
        clear_progress();
        if (!ended) return add(run, 0, ended.error().message);
        if (signals_.received() != 0) return;
        if (run.is_program() && ended->status == 0) {
            const auto made = finish_program(run, reader, known);
            if (!made) heard.unreadable = made.error().message + printed_last(heard.errors);
            heard.results += made ? 1 : 0;
        }
        std::string said = reader.errors();
        if (ended->was_silent)
            said = fmt::format("said nothing for {} s (--timeout)",
                               std::chrono::duration<double>(*child_.silence_max).count());
        if (said.empty()) said = heard.unreadable;
        if (said.empty() && ended->status == 0 && heard.results == 0)
            said = "no results were printed";
        if (said.empty() && ended->status == 0) return;
        const std::string error = failure_text(ended->status, said, heard.errors);
        if (run.kind == LabRun::Kind::facts && !report_.hosts.empty()) return skip(error);
        if (is_of_hosts(ended->status)) hosts_end_ = std::min(hosts_end_, run.hosts);
        if (run.algorithm == "serial") training_fails_[computes_on_gpu(run.backend)] = true;
        add(run, ended->status, error);
    }

    /// What a run has printed, besides its records.
    struct Heard {
        std::size_t results = 0;
        std::string unreadable;
        std::string errors;  ///< the end of its standard error
    };

    Result<ChildEnd> follow(RecordReader& reader, Heard& heard) {
        LineCutter lines;
        const auto take = [&](string_view line) {
            const auto taken = reader.take(line);
            if (!taken) heard.unreadable = taken.error().message;
            if (taken) heard.results += show_line(*taken) ? 1 : 0;
        };
        auto ended = run_child(
            child_, signals_, [&](string_view bytes) { lines.add(bytes, take); },
            [&](string_view bytes) {
                if (options_.verbosity >= log::Level::verbose)
                    static_cast<void>(write_all(STDERR_FILENO, bytes));
                heard.errors += bytes;
                if (heard.errors.size() > kRankErrorBytesMax)
                    heard.errors.erase(0, heard.errors.size() - kRankErrorBytesMax);
            });
        lines.finish(take);
        return ended;
    }

    /// How many records there were before a run.
    struct Known {
        std::size_t trainings, comms;
    };

    /// Makes a training of what a program's ranks have told, and of what it has printed itself.
    Result<void> finish_program(const LabRun& run, const RecordReader& reader, const Known& known) {
        for (std::size_t i = known.comms; i < report_.comms.size(); ++i)
            place(report_.comms[i], run);
        TrainRecord record;
        if (report_.train.size() > known.trainings) record = report_.train.back();
        report_.train.resize(known.trainings);
        place(record, run);
        record.seed = run.seed;
        if (run.kind == LabRun::Kind::script) describe_script(record);
        describe_training(record, run);
        if (auto done = check_compression(reader.steps(), run.compress); !done) return done;
        if (auto done = add_steps(record, reader.steps(), command_.step_regex); !done) return done;
        if (run.kind == LabRun::Kind::script && command_.scaling.empty())
            record.scaling = scaling_by_batch(record, report_.train);
        report_.train.push_back(std::move(record));
        show(lines_.train(report_.train.back()));
        return {};
    }

    static void place(ShapeRecord& record, const LabRun& run) {
        record.hosts = run.hosts;
        record.slots_per_host = run.slots;
        record.ranks = run.ranks();
        if (record.backend.empty()) record.backend = run.backend;
    }

    static void describe_training(TrainRecord& record, const LabRun& run) {
        if (record.algorithm.empty() || run.kind == LabRun::Kind::train)
            record.algorithm = run.algorithm;
        if (record.is_serial() && !record.is_on_gpu()) record.backend = "none";
    }

    void describe_script(TrainRecord& record) const {
        if (record.model.empty()) record.model = command_.program_text;
        if (!command_.scaling.empty()) record.scaling = command_.scaling.front();
        const int batch = command_.global_batch.value_or(0);
        if (record.global_batch == 0)
            record.global_batch = record.scaling == "weak" ? batch * record.ranks : batch;
    }

    /// Keeps the reasons why backends, which were only tried, cannot be used.
    void skip(const std::string& reasons) {
        for (const string_view reason : split(reasons, '\n'))
            if (!reason.empty()) report_.skipped.emplace_back(reason);
    }

    /// \return whether it is a result
    bool show_line(RecordReader::Line line) {
        switch (line) {
            case RecordReader::Line::row:
                show(lines_.row(report_.rows.back()));
                return true;
            case RecordReader::Line::pair:  // shown as a matrix at the end
                return true;
            case RecordReader::Line::comm:
            case RecordReader::Line::steps:
            case RecordReader::Line::train:  // which is shown when its ranks have ended
            case RecordReader::Line::error:
            case RecordReader::Line::other:
                return false;
            case RecordReader::Line::host:
                break;
        }
        return true;
    }

    void add(const LabRun& run, int status, std::string error) {
        FailureRecord failure;
        failure.backend = run.backend;
        failure.hosts = run.hosts;
        failure.slots_per_host = run.slots;
        failure.ranks = run.ranks();
        failure.what = run.words.front();
        const bool is_usual = run.algorithm == "parallel" || run.algorithm == "serial";
        if (!run.algorithm.empty() && (run.kind == LabRun::Kind::train || !is_usual))
            failure.what += " " + run.algorithm;
        failure.exit_code = status;
        failure.error = std::move(error);
        const auto& usual = backend_names();
        if (!run.backend.empty() && std::ranges::find(usual, run.backend) == usual.end())
            failure.error += did_you_mean(run.backend, usual);
        add(std::move(failure));
    }

    void add(FailureRecord failure) {
        log::error("{}", filled(words_.colon, failure_title(failure, report_.language),
                                told_in(report_.language, failure.error)));
        report_.failures.push_back(std::move(failure));
    }

    std::vector<std::string> backends_of_runs() {
        if (!command_.backends.empty()) return command_.backends;
        if (!command_.program.empty()) return {kOwnBackend};
        return found_backends();
    }

    /// The backends over which all hosts could connect, with one rank on each.
    std::vector<std::string> found_backends() {
        std::vector<std::string> names;
        for (const CommRecord& comm : std::exchange(report_.comms, {}))
            names.push_back(comm.backend);
        return names;
    }

    void no_backend() {
        FailureRecord failure;
        failure.what = "backends";
        failure.error =
            fmt::format("none can be had on every host:\n{}", fmt::join(report_.skipped, "\n"));
        add(std::move(failure));
    }

    int finish() {
        show(terminal_summary(report_, command_.explain));
        int status = report_.failed() ? kExitFailed : 0;
        if (report_.interrupted)
            log::error("{}", filled(words_.interrupted_in, number_, total_, found_until_now()));
        if (const auto written = write_reports(report_, command_); !written)
            status = complain_of(written.error(), report_.language);
        return report_.interrupted ? plan::kExitSignalBase + signals_.received() : status;
    }

    /// "12 rows, 3 pairs and 4 trainings"
    std::string found_until_now() const {
        const auto counted = [this](std::size_t count, string_view what) {
            return fact_in(report_.language, plural(count, what));
        };
        std::string text = counted(report_.rows.size(), "row");
        if (!report_.pairs.empty())
            text.append(words_.comma).append(counted(report_.pairs.size(), "pair"));
        return filled(words_.and_last, text, counted(report_.train.size(), "training"));
    }

    const LabJob& job_;
    const BenchCommand& command_;
    const plan::Options& options_;
    EndingSignals signals_{EndingSignals::Children::watched};
    ChildOptions child_;
    LabReport report_;
    const ReportWords& words_ = report_.words();
    TerminalRows lines_{report_.language};
    const int screen_;
    std::size_t number_ = 0;
    std::size_t total_ = 0;
    Deadline measured_since_{};                        ///< the first of `total_` runs
    int hosts_end_ = std::numeric_limits<int>::max();  ///< runs on this many hosts or more fail
    bool training_fails_[2] = {};  ///< the serial one on a processor, and on a GPU
    bool has_progress_ = false;
};

}  // namespace

int complain_of(const Error& error, Language language) {
    log::error("{}", told_in(language, error.message));
    return error.code == Errc::internal ? plan::kExitInternal : plan::kExitUsage;
}

std::string failure_text(int status, const std::string& said, const std::string& errors) {
    std::string text = said.empty() ? last_lines(errors) : said;
    if (text.empty()) text = fmt::format("ended with exit code {}", status);
    if (text.size() > kFailureBytesMax)
        text = "... " + printable(text.substr(text.size() - kFailureBytesMax));
    if (status == plan::kExitProgramMissing)
        text += fmt::format(
            "\n{} has to lie at the same path on every host; --rank-program names another",
            kRankProgram);
    return text;
}

int run_lab(const LabJob& job) {
    return LabRunner(job).run();
}

}  // namespace dtrun::lab
