#include "lab/rank/script.h"

#include "base/fd.h"
#include "collectives/backends/shared_library.h"
#include "lab/child.h"
#include "lab/rank/steps.h"
#include "lab/record_json.h"

#include <dtrun_collectives.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

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
    Listener(const StepRegex* regex, bool passes_records)
        : regex_(regex), passes_records_(passes_records) {}

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
    const std::vector<double>& values() const { return values_; }

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
        if (regex_ == nullptr) return;
        if (const auto value = regex_->find(line)) values_.push_back(*value);
    }

    const StepRegex* const regex_;
    const bool passes_records_;
    LineCutter output_{"\r\n"}, errors_{"\r\n"};  // bars of progress end with '\r'
    std::uint64_t lines_ = 0;
    std::vector<double> values_;
};

std::vector<std::string> environment_with(const std::string& marks, const std::string& backend) {
    std::vector<std::string> kept;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const string_view text(*entry);
        const bool is_ours = text.starts_with("DTRUN_STEPS_FILE=") ||
                             (!backend.empty() && text.starts_with("DTRUN_BACKEND="));
        if (!is_ours) kept.emplace_back(text);
    }
    kept.push_back("DTRUN_STEPS_FILE=" + marks);
    if (!backend.empty()) kept.push_back("DTRUN_BACKEND=" + backend);
    return kept;
}

/// Names a library for Python: the one that this program has. The user's choice stays.
template <class Function>
void use_library(const char* variable, Function* function, const char* file) {
    ::setenv(variable, (collectives::folder_of(function) / file).c_str(), 0);
}

Result<int> follow_script(const ScriptOptions& options) {
    std::optional<StepRegex> regex;
    if (!options.step_regex.empty()) {
        auto parsed = StepRegex::parse(options.step_regex);
        if (!parsed) return fail(parsed.error(), "--step-regex");
        regex = std::move(*parsed);
    }
    Marks marks;
    if (auto made = marks.make(); !made) return std::unexpected(made.error());
    Listener listener(regex ? &*regex : nullptr, rank_here() == 0);
    ChildOptions child;
    child.path = options.words.front();
    child.words = options.words;
    child.environment = environment_with(marks.path(), options.backend);
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
    StepsRecord record =
        regex ? steps_of_output(regex->unit(), listener.values()) : steps_of_marks(*marked);
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
