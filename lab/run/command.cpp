#include "lab/run/command.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/own_program.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "hostfiles/filter.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "lab/names.h"
#include "lab/plan/flags.h"
#include "lab/plan/plan.h"
#include "lab/report/compare.h"
#include "lab/report/html.h"
#include "lab/report/phrases.h"
#include "lab/report/text.h"
#include "lab/run/run.h"
#include "lab/run/targets.h"
#include "launcher/cli/command.h"
#include "launcher/plan/allocation_here.h"
#include "launcher/plan/machine_facts.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace dtrun::lab {
namespace {

using std::string_view;

/// The hosts on which ranks may run, and the hostfile from which runs read them again.
struct Source {
    LabPlaces places;
    std::string hostfile;  ///< for the runs; empty: none
    Fd standard_input;     ///< a copy of what it had; `hostfile` names it
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

/// Keeps a hostfile for all runs: standard input can be read only once.
Result<Fd> keep(string_view text) {
    Fd kept(::memfd_create("hostfile", 0));
    if (!kept) return fail(Errc::internal, "memfd_create: {}", std::strerror(errno));
    if (auto done = write_all(kept.get(), text); !done) return std::unexpected(done.error());
    return kept;
}

Result<HostList> named_hosts(const plan::Options& options, Source& source) {
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

LabPlaces this_machine(plan::EnvironmentView environment) {
    const plan::MachineFacts here = plan::machine_facts(environment);
    LabPlaces places;
    places.hosts.resize(1);
    places.hosts.front().name = "localhost";
    places.any_slots = true;
    places.slots_default_max = here.gpus > 0 ? here.gpus : here.cpus;
    return places;
}

/// Finds hosts and slots as the runs will find them by the same flags.
Result<Source> find_places(const plan::Options& options, plan::EnvironmentView environment) {
    Source source;
    LabPlaces& places = source.places;
    const bool named = !options.hosts.empty() || !options.hostfile.empty();
    std::optional<Allocation> allocation;
    if (named) {
        auto hosts = named_hosts(options, source);
        if (!hosts) return std::unexpected(hosts.error());
        places.hosts = std::move(*hosts);
    } else {
        const bool here_only = options.transport == plan::Transport::local ||
                               plan::find_variable(environment, "DTRUN_RANK").has_value();
        if (!here_only) {
            auto found = plan::allocation_here(environment);
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
    auto found = program_beside(kRankProgram);
    if (!found && found.error().code == Errc::not_found)
        found.error().message +=
            ": this dtrun was built or installed without its collectives; --rank-program names "
            "another";
    return found;
}

/// A name that is none of ours is of a plug-in that lies where DTRUN_BACKEND_DIR says, or is a mistake.
Result<void> check_backends(const BenchCommand& command, plan::EnvironmentView environment) {
    if (!command.rank_program.empty() || plan::find_variable(environment, "DTRUN_BACKEND_DIR"))
        return {};
    const std::vector<std::string>& known = backend_names();
    for (const std::string& name : command.backends)
        if (std::ranges::find(known, name) == known.end())
            return fail(Errc::invalid_input, "--backends: '{}' is not one of {}{}", name,
                        join_names(known), did_you_mean(name, known));
    return {};
}

Result<LabReport> read_report(const std::string& path) {
    const auto text = read_file(path);
    if (!text) return std::unexpected(text.error());
    return parse_report(*text, path);
}

int compare(const BenchCommand& command) {
    const Language language = language_of(command);
    auto before = read_report(command.files.at(0));
    if (!before) return complain_of(before.error(), language);
    auto after = read_report(command.files.at(1));
    if (!after) return complain_of(after.error(), language);
    before->language = after->language = language;
    const Comparison comparison = compare_reports(*before, *after);
    const std::string text =
        plain_text(comparison_table(comparison)) + "\n" + comparison_text(comparison) + "\n";
    auto written = write_all(screen_of(command), text);
    if (written && !command.html.empty())
        written = write_report_target(command.html, write_html(comparison, *before, *after));
    if (written) return 0;
    return complain_of(written.error(), language);
}

/// Writes reports of what --json has kept, as they were written when it was measured.
int write_again(const BenchCommand& command) {
    const Language language = language_of(command);
    auto kept = read_report(command.from);
    if (!kept) return complain_of(kept.error(), language);
    // Only now: that makes files, and one of them may be what was to be read.
    if (const auto done = check_report_targets(command); !done)
        return complain_of(done.error(), language);
    const LabReport report = as_wished(std::move(*kept), command);
    TerminalRows lines(report.language);
    std::string text;
    for (const RowRecord& row : report.rows) text += lines.row(row);
    for (const TrainRecord& run : report.train) text += lines.train(run);
    text += terminal_summary(report, command.explain);
    auto written = write_all(screen_of(command), text);
    if (written) written = write_reports(report, command);
    return written ? 0 : complain_of(written.error(), language);
}

}  // namespace

std::string typed_command(cli::Words words) {
    std::string text = "dtrun bench";
    bool is_variable = false;
    for (const std::string& word : words) {
        std::string shown = word;
        const bool attached = word.starts_with("-x") && word.size() > 2;
        const std::size_t equals = word.find('=', attached ? 3 : 0);
        if ((is_variable || attached) && equals != std::string::npos)
            shown = word.substr(0, equals + 1) + "...";
        is_variable = word == "-x";
        text += " " + shell_quote(shown);
    }
    return printable(text);
}

int run_bench_command(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_bench(words);
    if (const auto status = cli::settled(parsed, bench_help)) return *status;
    const BenchCommand& command = parsed->own;
    const plan::Options& options = parsed->options;
    log::init("dtrun", options.verbosity);
    if (!command.from.empty()) return write_again(command);
    const Language language = language_of(command);
    if (const auto done = check_report_targets(command); !done)
        return complain_of(done.error(), language);
    if (command.compare) return compare(command);
    if (const auto done = check_backends(command, environment); !done)
        return complain_of(done.error(), language);
    const auto source = find_places(options, environment);
    if (!source) return complain_of(source.error(), language);
    if (source->is_bystander) {
        log::info("{}",
                  told_in(language, "task 0 of this Slurm step measures; nothing to do here"));
        return 0;
    }
    const auto program = find_rank_program(command);
    if (!program) return complain_of(program.error(), language);
    return run_lab({command, options, environment, source->places, source->hostfile, *program,
                    typed_command(words)});
}

}  // namespace dtrun::lab
