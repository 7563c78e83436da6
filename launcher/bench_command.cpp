#include "launcher/bench_command.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "hostfiles/filter.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "launcher/allocation_here.h"
#include "launcher/bench_child.h"
#include "launcher/bench_compare.h"
#include "launcher/bench_html.h"
#include "launcher/bench_plan.h"
#include "launcher/bench_text.h"
#include "launcher/exit_code.h"
#include "launcher/machine_facts.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>

namespace dtrun {
namespace {

using std::string_view;
using namespace std::chrono_literals;

constexpr int kExitFailed = 1;
constexpr std::chrono::milliseconds kSweepSilence{300'000};
constexpr std::chrono::milliseconds kTrainSilence{3'600'000};
constexpr const char* kRankProgram = "dtrun-bench-rank";

int complain(const Error& error) {
    log::error("{}", error.message);
    return error.code == Errc::internal ? kExitInternal : kExitUsage;
}

/// Where the ranks may run, and from where runs read it again.
struct Source {
    BenchPlaces places;
    std::string hostfile;  ///< for the runs; empty: none
    Fd standard_input;     ///< what was read of it; `hostfile` names it
    bool is_bystander = false;
};

bool names_only(const HostList& hosts) {
    return std::ranges::all_of(hosts, [](const Host& host) {
        return host.slots == 1 && !host.slots_max && host.slot_ids.empty();
    });
}

int most_slots(const HostList& hosts) {
    int most = 1;
    for (const Host& host : hosts)
        most = std::max(
            most, host.slot_ids.empty() ? host.slots : static_cast<int>(host.slot_ids.size()));
    return most;
}

/// Standard input can be read once only; every run reads this descriptor instead.
Result<Fd> keep(string_view text) {
    Fd kept(::memfd_create("hostfile", 0));
    if (!kept) return fail(Errc::internal, "memfd_create: {}", std::strerror(errno));
    if (auto done = write_all(kept.get(), text); !done) return std::unexpected(done.error());
    return kept;
}

Result<HostList> named_hosts(const Options& options, Source& source) {
    if (!options.hosts.empty()) return parse_hosts(options.hosts);
    source.hostfile = options.hostfile;
    if (options.hostfile != "-") return read_hostfile(options.hostfile);
    const auto text = read_standard_input();
    if (!text) return std::unexpected(text.error());
    auto kept = keep(*text);
    if (!kept) return std::unexpected(kept.error());
    source.standard_input = std::move(*kept);
    source.hostfile = fmt::format("/dev/fd/{}", source.standard_input.get());
    return parse_hostfile(*text, "stdin");
}

BenchPlaces this_machine(EnvironmentView environment) {
    const MachineFacts here = machine_facts(environment);
    BenchPlaces places;
    places.hosts.resize(1);
    places.hosts.front().name = "localhost";
    places.any_slots = true;
    places.slots_default_max = here.gpus > 0 ? here.gpus : here.cpus;
    return places;
}

/// As the runs will find them by the same flags.
Result<Source> find_places(const Options& options, EnvironmentView environment) {
    Source source;
    BenchPlaces& places = source.places;
    const bool named = !options.hosts.empty() || !options.hostfile.empty();
    std::optional<Allocation> allocation;
    if (named) {
        auto hosts = named_hosts(options, source);
        if (!hosts) return std::unexpected(hosts.error());
        places.hosts = std::move(*hosts);
    } else {
        const bool here_only = options.transport == TransportChoice::local ||
                               find_variable(environment, "DTRUN_RANK").has_value();
        if (!here_only) {
            auto found = allocation_here(environment);
            if (!found) return std::unexpected(found.error());
            allocation = std::move(*found);
        }
        if (!allocation) {
            places = this_machine(environment);
            return source;
        }
        source.is_bystander = allocation->is_bystander;
        places.hosts = allocation->hosts;
    }
    auto kept = filter_hosts(places.hosts, options.include, options.exclude);
    if (!kept) return std::unexpected(kept.error());
    places.hosts = std::move(*kept);
    places.any_slots = !named || names_only(places.hosts);
    places.slots_default_max = most_slots(places.hosts);
    return source;
}

Result<std::string> find_rank_program(const BenchCommand& command) {
    if (!command.rank_program.empty()) {
        std::error_code none;
        return std::filesystem::absolute(command.rank_program, none).string();
    }
    std::error_code none;
    const auto own = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
    const auto beside = own / kRankProgram;
    const auto installed = own.parent_path() / "libexec/dtrun" / kRankProgram;
    for (const auto& path : {beside, installed})
        if (::access(path.c_str(), X_OK) == 0) return path.string();
    return fail(Errc::not_found,
                "no {} at {} or {}: this dtrun was built or installed without its collectives; "
                "--rank-program names another",
                kRankProgram, beside.string(), installed.string());
}

/// Reports that are asked for, with where they go.
std::vector<std::pair<string_view, string_view>> targets_of(const BenchCommand& command) {
    std::vector<std::pair<string_view, string_view>> targets;
    for (const auto& [flag, path] : {std::pair<string_view, string_view>{"--html", command.html},
                                     {"--markdown", command.markdown},
                                     {"--csv", command.csv},
                                     {"--json", command.json}})
        if (!path.empty()) targets.emplace_back(flag, path);
    return targets;
}

/// Before minutes of measuring: whether what is found can be written.
Result<void> check_targets(const BenchCommand& command) {
    int on_output = 0;
    for (const auto& [flag, path] : targets_of(command)) {
        if (path == "-") {
            if (++on_output > 1)
                return fail(Errc::invalid_input,
                            "{} -: another report goes to standard output already", flag);
            continue;
        }
        const Fd file(::open(std::string(path).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
        if (!file) return fail(Errc::invalid_input, "{} {}: {}", flag, path, std::strerror(errno));
    }
    return {};
}

Result<void> write_target(string_view path, string_view text) {
    if (path == "-") return write_all(STDOUT_FILENO, text);
    const Fd file(
        ::open(std::string(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) return fail(Errc::internal, "{}", std::strerror(errno));
    return write_all(file.get(), text);
}

std::string now_text() {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    char text[64];
    return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

/// The words of torchrun are those of the runs; what its variables would say is not meant for them.
std::vector<std::string> environment_of_runs(EnvironmentView environment) {
    std::vector<std::string> kept;
    for (const auto& variable : environment) {
        const string_view text(variable);
        if (!text.starts_with("PET_") && !text.starts_with("TORCH_ELASTIC_SHUTDOWN_TIMEOUT="))
            kept.emplace_back(text);
    }
    return kept;
}

/// Runs one step after the other, and shows what they say.
class BenchRun {
public:
    BenchRun(const BenchCommand& command, const Options& options, EnvironmentView environment)
        : command_(command), options_(options) {
        child_.environment = environment_of_runs(environment);
        child_.show_errors = options.verbosity >= log::Level::verbose;
        for (const auto& [flag, path] : targets_of(command))
            if (path == "-") screen_ = STDERR_FILENO;
    }

    int run(const Source& source, const std::string& rank_program) {
        const auto begin = Clock::now();
        report_.dtrun = DTRUN_VERSION;
        report_.started = now_text();
        hostfile_ = source.hostfile;
        rank_program_ = rank_program;
        // Whether hosts and slots are enough does not depend on what there is.
        const bool over = options_.oversubscribe;
        const auto possible = plan_bench(command_, source.places, {"any"}, over);
        if (!possible) return complain(possible.error());
        int most_hosts = 1;
        for (const BenchStep& each : *possible) most_hosts = std::max(most_hosts, each.hosts);
        step(facts_step(most_hosts,
                        command_.backends.empty() ? usual_backends() : std::vector<std::string>{}));
        const auto backends = command_.backends.empty() ? found_backends() : command_.backends;
        if (backends.empty() && signals_.received() == 0) no_backend(most_hosts);
        const auto steps = plan_bench(command_, source.places, backends, over);
        if (!steps) return complain(steps.error());
        total_ = steps->size();
        for (const BenchStep& each : *steps)
            if (signals_.received() == 0) step(each);
        report_.interrupted = signals_.received() != 0;
        report_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        return finish();
    }

    BenchReport& report() { return report_; }

private:
    void show(string_view text) {
        clear_progress();
        static_cast<void>(write_all(screen_, text));
    }

    void progress(const BenchStep& step) {
        if (::isatty(STDERR_FILENO) == 0 || options_.verbosity == log::Level::quiet) return;
        const std::string what =
            step.kind == BenchStep::Kind::facts
                ? "asking hosts what they have"
                : fmt::format("[{}/{}] {}{}, {} x {}", number_, total_,
                              step.algorithm.empty() ? "" : "training " + step.algorithm + ", ",
                              step.backend, step.hosts, step.slots);
        static_cast<void>(write_all(STDERR_FILENO, fmt::format("\r\x1b[K{} ...", what)));
        has_progress_ = true;
    }
    void clear_progress() {
        if (std::exchange(has_progress_, false))
            static_cast<void>(write_all(STDERR_FILENO, "\r\x1b[K"));
    }

    void step(const BenchStep& step) {
        if (step.kind != BenchStep::Kind::facts) ++number_;
        progress(step);
        const bool trains = step.kind == BenchStep::Kind::train;
        child_.words = launch_words(step, command_, hostfile_, rank_program_);
        child_.silence_max = command_.timeout.value_or(trains ? kTrainSilence : kSweepSilence);
        BenchReader reader(report_);
        std::size_t results = 0;
        std::string unreadable;
        const auto ended = run_self(child_, signals_, [&](string_view line) {
            const auto taken = reader.take(line);
            if (!taken) unreadable = taken.error().message;
            if (taken) results += show_line(*taken) ? 1 : 0;
        });
        clear_progress();
        BenchFailure failure;
        failure.backend = step.backend;
        failure.hosts = step.hosts;
        failure.slots_per_host = step.slots;
        failure.ranks = step.ranks();
        failure.what = trains ? "train " + step.algorithm : step.words.front();
        if (!ended) {
            failure.error = ended.error().message;
            return add(std::move(failure));
        }
        if (signals_.received() != 0) return;
        std::string said = reader.errors();
        if (ended->was_silent)
            said = fmt::format("said nothing for {} s (--timeout)",
                               std::chrono::duration<double>(child_.silence_max).count());
        if (said.empty()) said = unreadable;
        if (said.empty() && ended->status == 0 && results == 0) said = "no results were printed";
        if (said.empty() && ended->status == 0) return;
        failure.exit_code = ended->status;
        failure.error = failure_text(ended->status, said, ended->errors);
        if (step.kind == BenchStep::Kind::facts && !report_.hosts.empty())
            return skip(failure.error);
        add(std::move(failure));
    }

    /// Hosts have told what they are, and backends that were only tried why they cannot be had.
    void skip(const std::string& reasons) {
        for (const string_view reason : split(reasons, '\n'))
            if (!reason.empty()) report_.skipped.emplace_back(reason);
    }

    /// \return whether it is a result
    bool show_line(BenchReader::Line line) {
        switch (line) {
            case BenchReader::Line::row:
                show(lines_.row(report_.rows.back()));
                return true;
            case BenchReader::Line::train:
                show(lines_.train(report_.train.back()));
                return true;
            case BenchReader::Line::comm:
            case BenchReader::Line::error:
            case BenchReader::Line::other:
                return false;
            case BenchReader::Line::host:
                break;
        }
        return true;
    }

    void add(BenchFailure failure) {
        const std::string where =
            failure.backend.empty()
                ? failure.what
                : fmt::format("{}, {}, {}", failure.what, failure.backend, shape_text(failure));
        log::error("{}: {}", where, failure.error);
        report_.failures.push_back(std::move(failure));
    }

    /// Those that all hosts could connect by, one rank on each.
    std::vector<std::string> found_backends() {
        std::vector<std::string> names;
        for (const BenchComm& comm : std::exchange(report_.comms, {}))
            names.push_back(comm.backend);
        return names;
    }

    void no_backend(int hosts) {
        const bool asked = !report_.hosts.empty();
        BenchFailure failure;
        failure.what = "backends";
        failure.hosts = hosts;
        failure.error = asked ? fmt::format("none can be had on every host:\n{}",
                                            fmt::join(report_.skipped, "\n"))
                              : "hosts did not tell what they have, so there is nothing to choose "
                                "from; say which with --backends";
        add(std::move(failure));
    }

    int finish() {
        show(terminal_summary(report_, command_.explain));
        int status = report_.failed() ? kExitFailed : 0;
        if (const auto written = write_reports(); !written) status = complain(written.error());
        return report_.interrupted ? kExitSignalBase + signals_.received() : status;
    }

    Result<void> write_reports() const {
        for (const auto& [flag, path] : targets_of(command_)) {
            const std::string text = flag == "--html"       ? write_html(report_)
                                     : flag == "--markdown" ? write_markdown(report_)
                                     : flag == "--csv"      ? write_csv(report_)
                                                            : write_json(report_);
            if (const auto done = write_target(path, text); !done)
                return fail(done.error(), "{} {}", flag, path);
        }
        return {};
    }

    const BenchCommand& command_;
    const Options& options_;
    EndingSignals signals_;
    ChildOptions child_;
    std::string hostfile_;
    std::string rank_program_;
    BenchReport report_;
    BenchLines lines_;
    int screen_ = STDOUT_FILENO;
    std::size_t number_ = 0;
    std::size_t total_ = 0;
    bool has_progress_ = false;
};

Result<BenchReport> read_report(const std::string& path) {
    const auto text = read_file(path);
    if (!text) return std::unexpected(text.error());
    return parse_report(*text, path);
}

int compare(const BenchCommand& command) {
    const auto before = read_report(command.files.at(0));
    if (!before) return complain(before.error());
    const auto after = read_report(command.files.at(1));
    if (!after) return complain(after.error());
    const Comparison comparison = compare_reports(*before, *after);
    const std::string text =
        plain_text(comparison_table(comparison)) + "\n" + comparison_text(comparison) + "\n";
    const int screen = command.html == "-" ? STDERR_FILENO : STDOUT_FILENO;
    auto written = write_all(screen, text);
    if (written && !command.html.empty())
        written = write_target(command.html, write_html(comparison, *before, *after));
    if (written) return 0;
    log::error("{}", written.error().message);
    return kExitInternal;
}

}  // namespace

std::string typed_command(const std::vector<std::string>& words) {
    std::string text = "dtrun";
    bool is_variable = false;
    for (const std::string& word : words) {
        std::string shown = word;
        const bool attached = word.starts_with("-x=");
        const std::size_t equals = word.find('=', attached ? 3 : 0);
        if ((is_variable || attached) && equals != std::string::npos)
            shown = word.substr(0, equals + 1) + "...";
        is_variable = word == "-x";
        text += " " + shell_quote(shown);
    }
    return printable(text);
}

std::string failure_text(int status, const std::string& said, const std::string& errors) {
    constexpr std::size_t kLinesMax = 8;
    constexpr std::size_t kBytesMax = 1'200;
    const std::string clean = printable(errors);
    std::vector<std::string> lines;
    for (const string_view line : split(clean, '\n'))
        if (!trim(line).empty()) lines.emplace_back(line);
    const std::size_t skip = lines.size() > kLinesMax ? lines.size() - kLinesMax : 0;
    std::string text = said;
    for (std::size_t i = skip; i < lines.size() && said.empty(); ++i)
        text += (text.empty() ? "" : "\n") + lines[i];
    if (text.empty()) text = fmt::format("ended with exit code {}", status);
    if (text.size() > kBytesMax) text = printable(text.substr(0, kBytesMax)) + " ...";
    if (status == kExitProgramMissing)
        text += fmt::format(
            "\n{} has to lie at the same path on every host; --rank-program names "
            "another",
            kRankProgram);
    return text;
}

int run_bench_command(const BenchCommand& command, const Options& options,
                      EnvironmentView environment, const std::vector<std::string>& words) {
    if (command.compare) return compare(command);
    if (const auto done = check_targets(command); !done) return complain(done.error());
    const auto source = find_places(options, environment);
    if (!source) return complain(source.error());
    if (source->is_bystander) {
        log::info("task 0 of this Slurm step measures; nothing to do here");
        return 0;
    }
    const auto program = find_rank_program(command);
    if (!program) return complain(program.error());
    BenchRun run(command, options, environment);
    run.report().command = typed_command(words);
    return run.run(*source, *program);
}

}  // namespace dtrun
