#include "launcher/commands/run_job.h"

#include "base/fd.h"
#include "base/log.h"
#include "launcher/commands/print_plan.h"
#include "launcher/head/run_job.h"
#include "launcher/mpirun/mpirun_run.h"
#include "launcher/plan/exit_code.h"
#include "launcher/plan/job_plan.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

namespace dtrun::commands {
namespace {

/// --save_pid: a file with our process id, which must be new: /tmp is everybody's.
Result<void> write_pid_file(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return fail(Errc::denied, "--save_pid: {}: {}", path, std::strerror(errno));
    const Fd file(fd);
    return write_all(file.get(), std::to_string(::getpid()));
}

int run_by_agents(plan::JobSpec& spec) {
    const std::string& pid_file = spec.options.pid_file;
    if (!pid_file.empty())
        if (const auto done = write_pid_file(pid_file); !done) return cli::complain(done.error());
    const int status = head::run_job(spec);
    if (!pid_file.empty()) ::unlink(pid_file.c_str());
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

int run_options(plan::Options options, plan::EnvironmentView environment) {
    std::error_code no_directory;
    const std::string directory = std::filesystem::current_path(no_directory).string();
    const plan::PlanFormat plan = options.plan;
    auto spec = plan::make_job_spec(std::move(options), environment, directory);
    if (!spec) return cli::complain(spec.error());
    if (plan == plan::PlanFormat::none && spec->allocation && spec->allocation->is_bystander) {
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
    if (plan == plan::PlanFormat::none) return run_by_agents(*spec);
    return print_plan(*spec, mpirun ? &*mpirun : nullptr);
}

}  // namespace

int run_job(Result<cli::RunCommand> command, std::string (*help)(),
            plan::EnvironmentView environment) {
    if (const auto status = cli::settled(command, help)) return *status;
    log::init("dtrun", command->options.verbosity);
    for (const std::string& warning : command->warnings) log::warn("{}", warning);
    return run_options(std::move(command->options), environment);
}

}  // namespace dtrun::commands
