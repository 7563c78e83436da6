#include "launcher/commands/doctor_command.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/asio.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/cli/command.h"
#include "launcher/cli/defaults.h"
#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"
#include "launcher/doctor/doctor_run.h"
#include "launcher/head/agent_config_builder.h"
#include "launcher/head/channel_opener.h"
#include "launcher/plan/exit_code.h"
#include "launcher/plan/job_plan.h"
#include "launcher/transport/agent_file.h"

#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

namespace dtrun::commands {
namespace {

using enum cli::FlagGroup;
using std::chrono::milliseconds;

constexpr std::string_view kDoctor = R"(usage: dtrun doctor [options]

Examines hosts before a job finds out: whether one can log in to each and start
the agent there; clocks, limits, /dev/shm; whether hosts reach each other and
this machine at all their interfaces; MTUs; versions of Python, torch, MPI, NCCL
and NVIDIA's driver that differ; GPUs, and who else uses them; and, by a short
exchange, hosts and links that are slower than the others. It takes some
seconds, for 64 hosts as well. Without -H and --hostfile hosts are those of the
batch system, else this machine.

Exit code: 0 all is well; 1 something is to be mended, which is printed, hosts
with the same trouble together; 200 and more as of `dtrun run`.
)";

constexpr std::string_view kInfo = R"(usage: dtrun info

Prints what a report of a bug has to say about this machine and this dtrun, to
be pasted as it is. It has no secrets: of variables only those of dtrun and of
communication libraries are shown, and none whose name says that it is secret.

Exit code: 0.
)";

constexpr milliseconds kConnectTimeout{5'000};
constexpr std::uint64_t kDescriptors = 256, kDescriptorsOfHost = 8;

constexpr cli::HelpSection kDoctorSections[] = {{native, "What is printed"},
                                                {hosts, "Which hosts"},
                                                {environment, "What ranks would find there"},
                                                {reaching, "Reaching them"},
                                                {output, "Messages"},
                                                {other, "About dtrun"}};
constexpr cli::HelpSection kInfoSections[] = {{other, "About dtrun"}};

cli::Rows<ParsedDoctor> print_rows() {
    return {{{.names = "--json",
              .group = native,
              .help = "everything that was found out, as JSON; docs/DOCTOR.md has the fields"},
             [](ParsedDoctor& parsed, std::string_view) -> Result<void> {
                 parsed.json = true;
                 return {};
             }}};
}

/// Examines the hosts of a plan.
Result<doctor::DoctorReport> examine(plan::JobSpec& spec) {
    auto agent = transport::find_agent();
    if (!agent) return std::unexpected(agent.error());
    raise_descriptor_limit(kDescriptors + spec.hosts.size() * kDescriptorsOfHost);
    auto& io = *new asio::io_context(1);  // look-ups that hang may live on until the process ends
    const head::JobCredentials credentials;
    const head::Hosts hosts(spec);
    head::AgentConfigBuilder configs(spec, credentials, hosts, {});
    head::PlannedChannels channels(io.get_executor(), spec, credentials, std::move(*agent),
                                   configs);
    doctor::DoctorRun run(io.get_executor(), spec, channels);
    std::optional<doctor::DoctorReport> found;
    asio::co_spawn(io, run.run(), [&](std::exception_ptr error, doctor::DoctorReport result) {
        if (error) std::rethrow_exception(error);
        found = std::move(result);
        io.stop();
    });
    io.run();
    return std::move(*found);
}

/// Ends the process: a name look-up that hangs would keep it.
[[noreturn]] void leave(int status) {
    std::fflush(nullptr);
    ::_exit(status);
}

Result<plan::JobSpec> plan_of(plan::Options options, plan::EnvironmentView environment) {
    const std::string directory = plan::directory_here(environment);
    options.program = {"true"};  // nothing is run
    return plan::make_job_spec(std::move(options), environment, directory);
}

/// Variables that change how jobs run, and are nobody's secret.
bool is_of_interest(std::string_view name) {
    for (const std::string_view secret :
         {"SECRET", "TOKEN", "KEY", "PASS", "CREDENTIAL", "DTRUN_OPTIONS"})
        if (name.find(secret) != std::string_view::npos) return false;
    for (const std::string_view prefix :
         {"DTRUN_", "NCCL_", "GLOO_", "HOROVOD_", "OMPI_MCA_", "PMIX_MCA_", "UCX_", "FI_", "I_MPI_",
          "OMP_", "CUDA_VISIBLE", "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_STEP_ID",
          "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "VIRTUAL_ENV", "CONDA_PREFIX"})
        if (name.starts_with(prefix)) return true;
    return false;
}

std::string info_text(const doctor::DoctorReport& report, plan::EnvironmentView environment) {
    std::string text = cli::version_text();
    const auto add = [&text](std::string_view name, std::string_view value) {
        if (!value.empty()) text += two_columns(name, value, 16);
    };
    std::error_code none;
    add("program", std::filesystem::read_symlink("/proc/self/exe", none).string());
    const auto agent = transport::find_agent();
    add("agent", agent ? agent->path : agent.error().message);
    const doctor::HostReport& here = report.hosts.front();
    if (here.why) add("examination", *here.why);
    for (const HostFact& fact : here.facts) add(fact.name, fact.value);
    if (here.seen)
        for (const HostAddress& address : here.seen->addresses)
            add("interface", fmt::format("{} {}/{} mtu {}", address.interface, address.address,
                                         address.prefix, address.mtu));
    for (const std::string& variable : environment)
        if (is_of_interest(std::string_view(variable).substr(0, variable.find('='))))
            add("variable", escaped(variable, 512));
    return text;
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
    if (std::ranges::none_of(parsed.given, waits)) options.connect_timeout = kConnectTimeout;
    auto spec = plan_of(std::move(options), environment);
    if (!spec) return cli::complain(spec.error());
    if (spec->is_bystander) {
        log::info("task 0 of this Slurm step examines the hosts; nothing to do here");
        return 0;
    }
    const auto report = examine(*spec);
    if (!report) return cli::complain(report.error());
    const std::vector<doctor::Finding> findings = doctor::diagnose(*report);
    std::string text =
        parsed.json ? doctor::to_json(*report, findings) : doctor::to_text(*report, findings);
    if (const std::size_t columns = terminal_columns(STDOUT_FILENO); columns > 0 && !parsed.json)
        text = fold_messages(text, columns);
    if (const int status = cli::print(text); status != 0) leave(status);
    leave(findings.empty() ? 0 : 1);
}

std::string doctor_help() {
    return std::string(kDoctor) + cli::sections(doctor_flags().flags(), kDoctorSections);
}

const cli::FlagTable<ParsedInfo>& info_flags() {
    static const cli::FlagTable<ParsedInfo> table("dtrun info", {cli::about_rows<ParsedInfo>()});
    return table;
}

int run_info(cli::Words words, plan::EnvironmentView environment) {
    ParsedInfo parsed;
    const auto rest = cli::read_options(info_flags(), words, parsed);
    if (!rest) return cli::complain(rest.error());
    if (parsed.asked == cli::Ask::help) return cli::print(info_help());
    if (parsed.asked == cli::Ask::version) return cli::print(cli::version_text());
    if (!rest->words.empty())
        return cli::complain(
            {Errc::invalid_input,
             fmt::format("'{}' is no option; usage: dtrun info", rest->words.front())});
    log::init("dtrun", log::Level::normal);
    plan::Options options;
    options.transport = plan::Transport::local;
    options.connect_timeout = kConnectTimeout;
    auto spec = plan_of(std::move(options), environment);
    if (!spec) return cli::complain(spec.error());
    const auto report = examine(*spec);
    if (!report) return cli::complain(report.error());
    leave(cli::print(info_text(*report, environment)));
}

std::string info_help() {
    return std::string(kInfo) + cli::sections(info_flags().flags(), kInfoSections);
}

}  // namespace dtrun::commands
