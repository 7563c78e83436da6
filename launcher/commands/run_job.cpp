#include "launcher/commands/run_job.h"

#include "base/log.h"
#include "base/process/soft_limits.h"
#include "launcher/commands/check_build.h"
#include "launcher/commands/detach.h"
#include "launcher/commands/print_plan.h"
#include "launcher/head/job_report.h"
#include "launcher/head/run_job.h"
#include "launcher/history/history_folder.h"
#include "launcher/history/typed_line.h"
#include "launcher/holder/start_holder.h"
#include "launcher/mpirun/mpirun_run.h"
#include "launcher/plan/exit_code.h"
#include "launcher/plan/job_plan.h"
#include "launcher/plan/one_machine.h"

#include <unistd.h>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::commands {
namespace {

/// Ranks on other hosts get them as those of this machine do.
std::vector<ForwardedRlimit> limits_here() {
    std::vector<ForwardedRlimit> limits;
    for (const std::string_view name : forwarded_rlimits())
        if (const auto value = soft_limit(name)) limits.push_back({std::string(name), *value});
    return limits;
}

int run_by_agents(plan::JobSpec& spec, const std::string& farewell, head::StartTeller& teller) {
    spec.limits = limits_here();
    int status = head::run_job(spec, teller);
    const bool is_told = !farewell.empty() && spec.options.verbosity >= log::Level::normal;
    if (status == 0 && is_told) status = cli::print(farewell);
    // Name look-ups and handlers that are still under way have nothing left to say.
    std::fflush(nullptr);
    ::_exit(status);
}

int print_plan(const plan::JobSpec& spec, const mpirun::MpirunPlan* mpirun) {
    const auto binding = plan_binding(spec);
    if (!binding) return cli::complain(binding.error());
    const bool json = spec.options.plan == plan::PlanFormat::json;
    return cli::print(json ? plan_json(spec, mpirun, *binding) : plan_text(spec, mpirun, *binding));
}

/// What the record of the job will have, besides what becomes of it.
void add_history(const Typed& typed, plan::Options& options, plan::EnvironmentView environment) {
    plan::HistoryOptions& history = options.history;
    const auto variable = [environment](std::string_view name) {
        return plan::find_variable(environment, name).value_or("");
    };
    history.folder = history::history_folder(variable("XDG_STATE_HOME"), variable("HOME"));
    std::vector<std::string> words(typed.words.begin(), typed.words.end());
    const bool is_run = typed.command == "run";
    const bool names_program = !words.empty() && !cli::is_option(words.front());
    if (!is_run || names_program) words.insert(words.begin(), std::string(typed.command));
    // Of other launchers' command lines the program is not always the last words.
    const std::size_t program = is_run && options.parts.empty() ? options.program.size() : 0;
    history::TypedLine line = history::without_secrets(std::move(words), program);
    history.typed = std::move(line.words);
    history.hidden = std::move(line.hidden);
    history.typed_in = plan::directory_here(environment);
}

int run_options(plan::Options options, const std::string& farewell,
                plan::EnvironmentView environment, head::StartTeller& teller) {
    const std::string directory = plan::directory_here(environment);
    const plan::PlanFormat plan = options.plan;
    // First, as it forks: this job logs in there, too. Where nothing can be kept it logs in by itself.
    if (options.warm.keep && plan == plan::PlanFormat::none)
        holder::start_holder(options, environment, holder::Wait::until_known);
    auto spec = plan::make_job_spec(options, environment, directory);
    if (!spec) {
        int status = cli::complain(spec.error());
        if (spec.error().code == Errc::unreachable) status = plan::kExitUnreachable;
        head::report_refusal(options, status, spec.error().message);
        return status;
    }
    if (const auto apart = plan::check_one_machine(*spec); !apart) {
        head::report_refusal(options, plan::kExitUsage, apart.error().message);
        return cli::complain(apart.error());
    }
    if (plan == plan::PlanFormat::none && spec->is_bystander) {
        log::info("task 0 of this Slurm step launches the ranks; nothing to do here");
        return 0;
    }
    std::optional<mpirun::MpirunPlan> mpirun;
    if (spec->options.mpirun) {
        auto planned = mpirun::plan_mpirun(*spec, environment);
        if (!planned) return cli::complain(planned.error());
        mpirun = std::move(*planned);
    }
    if (plan == plan::PlanFormat::none && mpirun) {
        log::error("{}", mpirun::run_mpirun(*spec, mpirun->command).message);
        return plan::kExitInternal;
    }
    if (plan == plan::PlanFormat::none && spec->options.show_plan)
        std::fputs(plan_text(*spec, nullptr).c_str(), stderr);
    if (plan == plan::PlanFormat::none) return run_by_agents(*spec, farewell, teller);
    return print_plan(*spec, mpirun ? &*mpirun : nullptr);
}

}  // namespace

int run_job(const Typed& typed, Result<cli::RunCommand> command, std::string (*help)(),
            plan::EnvironmentView environment) {
    if (command && command->asked == cli::Ask::check_build) return run_check_build();
    if (const auto status = cli::settled(command, help)) return *status;
    log::init("dtrun", command->options.verbosity);
    for (const std::string& warning : command->warnings) log::warn("{}", warning);
    add_history(typed, command->options, environment);
    head::StartTeller teller;
    if (command->options.history.detach && command->options.plan == plan::PlanFormat::none) {
        warn_within_rank("the detached job", environment);
        if (const auto status = detach(command->options, teller)) return *status;
    }
    return run_options(std::move(command->options), command->farewell, environment, teller);
}

}  // namespace dtrun::commands
