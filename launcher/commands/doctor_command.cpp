#include "launcher/commands/doctor_command.h"

#include "base/log.h"
#include "base/text_layout.h"
#include "launcher/cli/command.h"
#include "launcher/cli/defaults.h"
#include "launcher/cli/help.h"
#include "launcher/doctor/examine.h"

#include <unistd.h>
#include <algorithm>
#include <utility>

namespace dtrun::commands {
namespace {

using enum cli::FlagGroup;

constexpr std::string_view kDoctor = R"(usage: dtrun doctor [options]

Examines hosts as a job would use them: whether one can log in to each and start
the agent there; clocks, limits, /dev/shm; whether hosts reach each other and
this machine on all their interfaces; MTUs; differing versions of Python, torch,
MPI, NCCL and NVIDIA's driver; GPUs, and who else uses them; and, by a short
exchange of data, hosts and links that are slower than the others. This takes
some seconds, even for 64 hosts. Without -H and --hostfile, the hosts are those
of the batch system, else this machine.

Exit code: 0 all is well; 1 something needs fixing: it is printed, hosts with
the same problem together; from 200 on as for `dtrun run`.
)";

constexpr cli::HelpSection kDoctorSections[] = {{native, "What is printed"},
                                                {hosts, "Which hosts"},
                                                {environment, "What ranks would find there"},
                                                {reaching, "Reaching them"},
                                                {output, "Messages"},
                                                {other, "About dtrun"}};

cli::Rows<ParsedDoctor> print_rows() {
    return {{{.names = "--json",
              .group = native,
              .help = "print all findings as JSON; docs/DOCTOR.md describes the fields"},
             [](ParsedDoctor& parsed, std::string_view) -> Result<void> {
                 parsed.json = true;
                 return {};
             }}};
}

}  // namespace

const cli::FlagTable<ParsedDoctor>& doctor_flags() {
    static const cli::FlagTable<ParsedDoctor> table(
        "dtrun doctor", {print_rows(), cli::rows_for<ParsedDoctor>(
                                           cli::run_flags().in_scope(cli::FlagScope::doctor))});
    return table;
}

int run_doctor(cli::Words words, plan::EnvironmentView environment) {
    ParsedDoctor parsed;
    const auto all =
        cli::with_defaults(words, doctor_flags(), cli::run_flags().flags(), environment);
    if (!all) return cli::complain(all.error());
    const auto rest = cli::read_options(doctor_flags(), *all, parsed);
    if (!rest) return cli::complain(rest.error());
    if (parsed.asked == cli::Ask::help) return cli::print(doctor_help());
    if (parsed.asked == cli::Ask::version) return cli::print(cli::version_text());
    if (!rest->words.empty())
        return cli::complain(
            {Errc::invalid_input, fmt::format("'{}' is no option; hosts are named by -H, as in "
                                              "dtrun doctor -H s1,s2; usage: dtrun "
                                              "doctor [options]",
                                              rest->words.front())});
    plan::Options& options = parsed.options;
    log::init("dtrun", options.verbosity);
    const auto waits = [](const cli::GivenFlag& flag) { return flag.name == "--connect-timeout"; };
    if (std::ranges::none_of(parsed.given, waits))
        options.connect_timeout = doctor::kExamineTimeout;
    auto spec = doctor::plan_of_examination(std::move(options), environment);
    if (!spec) return cli::complain(spec.error());
    if (spec->is_bystander) {
        log::info("task 0 of this Slurm step examines the hosts; nothing to do here");
        return 0;
    }
    const auto report = doctor::examine(*spec);
    if (!report) return cli::complain(report.error());
    const std::vector<doctor::Finding> findings = doctor::diagnose(*report);
    std::string text =
        parsed.json ? doctor::to_json(*report, findings) : doctor::to_text(*report, findings);
    if (const std::size_t columns = terminal_columns(STDOUT_FILENO); columns > 0 && !parsed.json)
        text = fold_messages(text, columns);
    if (const int status = cli::print(text); status != 0) doctor::leave_examination(status);
    doctor::leave_examination(findings.empty() ? 0 : 1);
}

std::string doctor_help() {
    return std::string(kDoctor) + cli::sections(doctor_flags().flags(), kDoctorSections);
}

}  // namespace dtrun::commands
