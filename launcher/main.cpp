#include "base/fd.h"
#include "base/log.h"
#include "lab/run/command.h"
#include "launcher/cli/cli.h"
#include "launcher/commands/hosts_command.h"
#include "launcher/commands/print_plan.h"
#include "launcher/commands/serve.h"
#include "launcher/commands/store_command.h"
#include "launcher/head/run_job.h"
#include "launcher/mpirun/mpirun_run.h"
#include "launcher/plan/exit_code.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace dtrun;

int exit_with(const Error& error) {
    log::error("{}", error.message);
    return plan::kExitUsage;
}

/// --save_pid: a file with our process id, which must be new: /tmp is everybody's.
Result<void> write_pid_file(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return fail(Errc::denied, "--save_pid: {}: {}", path, std::strerror(errno));
    const Fd file(fd);
    return write_all(file.get(), std::to_string(::getpid()));
}

int run_job(const plan::JobSpec& spec) {
    const std::string& pid_file = spec.options.pid_file;
    if (!pid_file.empty())
        if (const auto done = write_pid_file(pid_file); !done) return exit_with(done.error());
    const int status = head::run_job(spec);
    if (!pid_file.empty()) ::unlink(pid_file.c_str());
    // Name look-ups and handlers that are still under way have nothing left to say.
    std::fflush(nullptr);
    ::_exit(status);
}

int run(plan::Options options, plan::EnvironmentView environment) {
    std::error_code no_directory;
    const std::string directory = std::filesystem::current_path(no_directory).string();
    const plan::PlanFormat plan = options.plan;
    const auto spec = plan::make_job_spec(std::move(options), environment, directory);
    if (!spec) return exit_with(spec.error());
    if (plan == plan::PlanFormat::none && spec->allocation && spec->allocation->is_bystander) {
        log::info("task 0 of this Slurm step launches the ranks; nothing to do here");
        return 0;
    }
    std::optional<mpirun::MpirunPlan> mpirun;
    if (spec->options.mpirun) {
        auto planned = mpirun::plan_mpirun(*spec, environment);
        if (!planned) return exit_with(planned.error());
        mpirun = std::move(*planned);
    }
    if (plan == plan::PlanFormat::none && mpirun) {
        log::error("{}", mpirun::run_mpirun(*spec, mpirun->command).message);
        return plan::kExitInternal;
    }
    if (plan == plan::PlanFormat::none) return run_job(*spec);
    const mpirun::MpirunPlan* const shown = mpirun ? &*mpirun : nullptr;
    const std::string text = plan == plan::PlanFormat::json ? commands::plan_json(*spec, shown)
                                                            : commands::plan_text(*spec, shown);
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                   std::fflush(stdout) == 0
               ? 0
               : plan::kExitInternal;
}

/// A caller may have closed standard streams; what we open must not take their numbers.
void open_standard_streams() {
    for (;;) {
        const int fd = ::open("/dev/null", O_RDWR);
        if (fd > STDERR_FILENO) ::close(fd);
        if (fd < 0 || fd > STDERR_FILENO) return;
    }
}

/// Called by a link that has the name of another launcher, dtrun is that launcher.
std::vector<std::string> words_of(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    const std::string name = std::filesystem::path(argv[0]).filename().string();
    if (name == "torchrun" || name == "deepspeed") words.insert(words.begin(), name);
    return words;
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_streams();
    ::signal(SIGPIPE, SIG_IGN);
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
    if (argc < 1) return exit_with({Errc::invalid_input, "no argv[0]"});
    const std::vector<std::string> words = words_of(argc, argv);
    auto command = cli::parse_command_line(words, environment);
    if (!command) return exit_with(command.error());
    log::init("dtrun", command->options.verbosity);
    for (const std::string& warning : command->warnings) log::warn("{}", warning);
    if (command->kind == cli::CommandLine::Kind::run)
        return run(std::move(command->options), environment);
    if (command->kind == cli::CommandLine::Kind::serve) {
        log::init("dtrun serve", command->serve.verbosity);
        return commands::run_serve(command->serve, environment);
    }
    if (command->kind == cli::CommandLine::Kind::store)
        return commands::run_store_command(command->store, environment);
    if (command->kind == cli::CommandLine::Kind::bench)
        return lab::run_bench_command(command->bench, command->options, environment, words);
    if (command->kind == cli::CommandLine::Kind::hosts)
        commands::run_hosts_command(command->hosts, environment);
    std::fputs(command->text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : plan::kExitInternal;
}
