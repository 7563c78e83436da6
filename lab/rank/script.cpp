#include "lab/rank/script.h"

#include "base/clock.h"
#include "base/fd.h"
#include "collectives/backends/shared_library.h"
#include "lab/child.h"
#include "lab/rank/steps.h"
#include "lab/record_json.h"

#include <dtrun_collectives.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>

extern char** environ;

namespace dtrun::lab::rank {

namespace {

using std::string_view;

constexpr int kFailed = 1;
constexpr std::size_t kMarksMax = 1u << 30;

int rank_here() {
    const char* const rank = std::getenv("DTRUN_RANK");
    return rank == nullptr ? 0 : std::atoi(rank);
}

/// A file without a name, in which the program marks its steps. It is gone with this process.
class Marks {
public:
    Result<void> make() {
        file_ = Fd(::memfd_create("steps", MFD_CLOEXEC));
        if (!file_) return fail(Errc::internal, "memfd_create: {}", std::strerror(errno));
        return {};
    }
    /// By which the program, and what it starts, can open it.
    std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get()); }
    Result<std::string> text() const { return read_file(path(), kMarksMax); }

private:
    Fd file_;
};

/// Listens to what the program prints.
class Listener {
public:
    /// \param steps  the user's expression; empty: the usual ones
    Listener(std::span<const StepRegex> steps, const AccuracyRegex& accuracy, bool passes_records)
        : steps_regexes_(steps.empty() ? StepRegex::usual() : steps),
          are_usual_(steps.empty()),
          accuracy_regex_(accuracy),
          passes_records_(passes_records) {}

    void output(string_view bytes) {
        output_.add(bytes, [this](string_view line) { take_output(line); });
    }
    void errors(string_view bytes) {
        static_cast<void>(write_all(STDERR_FILENO, bytes));
        errors_.add(bytes, [this](string_view line) { look_at(line); });
    }
    void finish() {
        output_.finish([this](string_view line) { take_output(line); });
        errors_.finish([this](string_view line) { look_at(line); });
    }

    std::uint64_t lines() const { return lines_; }
    StepRegex::Unit unit() const {
        return (steps_.empty() ? steps_regexes_.front() : steps_regexes_.back()).unit();
    }
    const std::vector<Printed>& steps() const { return steps_; }
    const std::vector<Printed>& accuracies() const { return accuracies_; }

private:
    void take_output(string_view line) {
        if (line.empty()) return;
        const bool is_record = line.starts_with('{') && line.find("\"type\"") != string_view::npos;
        const std::string whole = std::string(line) + "\n";
        if (!is_record)
            static_cast<void>(write_all(STDERR_FILENO, whole));
        else if (passes_records_)
            static_cast<void>(write_all(STDOUT_FILENO, whole));
        look_at(line);
    }

    void look_at(string_view line) {
        ++lines_;
        const std::int64_t now = Clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
        look_for_step(line, now);
        look_for_accuracy(line, now);
    }

    /// The first of the usual expressions that is found is the program's, unless one before it comes later: then those so
    /// far were of a bar of something else, as a download. Steps of tests count nothing there, but a bar of an epoch shows
    /// behind it what the test has come to.
    void look_for_step(string_view line, std::int64_t now) {
        const string_view front = line.substr(0, line.find("%|"));
        const bool is_epoch = front.starts_with("Epoch") || front.starts_with("Train");
        if (are_usual_ && speaks_of_test(is_epoch ? front : line)) return;
        for (std::size_t i = 0; i < steps_regexes_.size(); ++i)
            if (const auto value = steps_regexes_[i].find(line)) {
                if (i + 1 < steps_regexes_.size()) steps_.clear();
                steps_regexes_ = steps_regexes_.first(i + 1);
                steps_.push_back({*value, now});
                return;
            }
    }

    /// What a bar shows takes the place of what it has shown before.
    void look_for_accuracy(string_view line, std::int64_t now) {
        const auto position = bar_position(line);
        if (position) {
            if (*position < bar_position_) shown_by_bar_ = false;  // it is another bar
            bar_position_ = *position;
        }
        const auto value = accuracy_regex_.find(line);
        if (!value) return;
        if (!position || !shown_by_bar_) accuracies_.emplace_back();
        accuracies_.back() = {*value, now};
        shown_by_bar_ = position.has_value();
    }

    std::span<const StepRegex> steps_regexes_;
    const bool are_usual_;
    const AccuracyRegex& accuracy_regex_;
    const bool passes_records_;
    LineCutter output_{"\r\n"}, errors_{"\r\n"};  // bars of progress end with '\r'
    std::uint64_t lines_ = 0;
    std::vector<Printed> steps_, accuracies_;
    double bar_position_ = 0;
    bool shown_by_bar_ = false;  ///< the last accuracy is of the bar that was drawn last
};

std::vector<std::string> environment_with(const std::string& marks, const ScriptOptions& options) {
    // Lines are to be heard when they are printed.
    std::vector<std::string> ours{"DTRUN_STEPS_FILE=" + marks, "PYTHONUNBUFFERED=1"};
    if (!options.backend.empty()) ours.push_back("DTRUN_BACKEND=" + options.backend);
    if (!options.compress.empty()) {
        ours.push_back("DTRUN_TORCH_COMPRESSION=" + options.compress);
        ours.emplace_back("DTRUN_COMPRESS=always");  // as the sweep does, on one host, too
    }
    std::vector<std::string> kept;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const string_view name = string_view(*entry).substr(0, string_view(*entry).find('=') + 1);
        if (std::ranges::none_of(ours, [name](string_view own) { return own.starts_with(name); }))
            kept.emplace_back(*entry);
    }
    std::ranges::move(ours, std::back_inserter(kept));
    return kept;
}

/// What is known of steps: by marks if there are any, else by what is printed; --step-regex alone, if it is given.
StepsRecord steps_of(const ScriptOptions& options, string_view marks, const Listener& listener) {
    StepsRecord printed = steps_of_output(listener.unit(), listener.steps());
    StepsRecord marked = steps_of_marks(marks);
    if (!options.step_regex.empty() || marked.source.empty()) {
        printed.compression = marked.compression;
        printed.backend = marked.backend;
        printed.batch = marked.batch;
        return printed;
    }
    if (!std::isfinite(marked.batch)) marked.rank_samples_per_s = printed.rank_samples_per_s;
    return marked;
}

/// Names a library for Python: the one that this program has. The user's choice stays.
template <class Function>
void use_library(const char* variable, Function* function, const char* file) {
    ::setenv(variable, (collectives::folder_of(function) / file).c_str(), 0);
}

Result<int> follow_script(const ScriptOptions& options) {
    std::vector<StepRegex> asked;
    if (!options.step_regex.empty()) {
        auto regex = StepRegex::parse(options.step_regex);
        if (!regex) return fail(regex.error(), "--step-regex");
        asked.push_back(std::move(*regex));
    }
    const auto accuracy = options.accuracy_regex.empty()
                              ? Result<AccuracyRegex>(AccuracyRegex::usual())
                              : AccuracyRegex::parse(options.accuracy_regex);
    if (!accuracy) return fail(accuracy.error(), "--accuracy-regex");
    Marks marks;
    if (auto made = marks.make(); !made) return std::unexpected(made.error());
    Listener listener(asked, *accuracy, rank_here() == 0);
    ChildOptions child;
    child.path = options.words.front();
    child.words = options.words;
    child.environment = environment_with(marks.path(), options);
    child.death_signal = SIGKILL;
    child.forward_signals = false;
    EndingSignals signals(EndingSignals::Children::watched);
    const auto ended = run_child(
        child, signals, [&](string_view bytes) { listener.output(bytes); },
        [&](string_view bytes) { listener.errors(bytes); });
    if (!ended) return std::unexpected(ended.error());
    listener.finish();
    const auto marked = marks.text();
    if (!marked) return std::unexpected(marked.error());
    StepsRecord record = steps_of(options, *marked, listener);
    add_accuracies(record, listener.accuracies());
    record.rank = rank_here();
    record.lines = listener.lines();
    if (ended->status == 0) static_cast<void>(write_all(STDOUT_FILENO, line_of(record) + "\n"));
    return ended->status;
}

}  // namespace

int run_script(const ScriptOptions& options) {
    const auto status = follow_script(options);
    if (status) return *status;
    static_cast<void>(write_all(STDERR_FILENO,
                                fmt::format("rank {}: {}\n", rank_here(), status.error().message)));
    return kFailed;
}

int run_trainer(ScriptOptions options) {
    // So that it has the plug-ins that are measured besides.
    use_library("LIBDTRUN_PATH", &dtrun_init, "libdtrun.so.0");
    use_library("LIBDTRUN_COLLECTIVES_PATH", &dtrun_comm_create, "libdtrun_collectives.so.0");
    std::error_code none;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
    // -B: nothing is written there.
    options.words.insert(options.words.begin() + 1, {"-B", folder / "torch/trainer.py"});
    return run_script(options);
}

}  // namespace dtrun::lab::rank
