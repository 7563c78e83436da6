#include "launcher/mpirun/mpirun_run.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/process/command_output.h"
#include "base/process/subprocess.h"
#include "base/strings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace dtrun::mpirun {
namespace {

/// The hostfile's number, which --plan shows, is above those that shells and wrappers around mpirun
/// use.
constexpr int kHostfileFd = 64;

std::string hostfile_path(int fd) {
    return fmt::format("/dev/fd/{}", fd);
}

/// A link named mpirun may lead to dtrun, which would call itself for ever.
bool is_ourselves(const std::string& path) {
    struct stat there {
    }, here{};
    return ::stat(path.c_str(), &there) == 0 && ::stat("/proc/self/exe", &here) == 0 &&
           there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

std::string find_in_path(plan::EnvironmentView caller, std::string_view name) {
    const std::string_view path = plan::find_variable(caller, "PATH").value_or("/usr/bin:/bin");
    for (const std::string_view folder : split(path, ':')) {
        std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
        if (is_program(file) && !is_ourselves(file)) return file;
    }
    return "";
}

/// A descriptor that mpirun inherits and opens by name, as often as it likes.
Result<Fd> memory_file(std::string_view content) {
    const Fd made(::memfd_create("hostfile", MFD_CLOEXEC));
    if (!made) return fail(Errc::internal, "memfd_create: {}", std::strerror(errno));
    if (auto done = write_all(made.get(), content); !done) return std::unexpected(done.error());
    Fd inherited(::fcntl(made.get(), F_DUPFD, kHostfileFd));
    if (!inherited)  // ulimit -n allows no such number
        inherited.reset(::fcntl(made.get(), F_DUPFD, STDERR_FILENO + 1));
    if (!inherited) return fail(Errc::internal, "F_DUPFD: {}", std::strerror(errno));
    return inherited;
}

/// mpirun's environment as "NAME=value"; the command's variables replace others of the same name.
std::vector<std::string> environment_of(const plan::JobSpec& spec, const MpirunCommand& command) {
    std::vector<std::string> texts;
    for (const auto& [name, value] : spec.environment.local)
        if (std::ranges::find(command.environment, name, &plan::Options::Variable::first) ==
            command.environment.end())
            texts.push_back(name + "=" + value);
    for (const auto& [name, value] : command.environment) texts.push_back(name + "=" + value);
    return texts;
}

}  // namespace

Result<MpirunProgram> find_mpirun(plan::EnvironmentView caller) {
    constexpr std::string_view kInstead =
        "or leave --mpi mpirun out: dtrun starts MPI programs without one";
    const std::string named(plan::find_variable(caller, "DTRUN_MPIRUN").value_or(""));
    const bool is_path = named.find('/') != std::string::npos;
    if (is_path && (!is_program(named) || is_ourselves(named)))
        return fail(Errc::not_found,
                    "--mpi mpirun: DTRUN_MPIRUN={}: no file that can be executed, or dtrun itself; "
                    "name another, {}",
                    named, kInstead);
    std::string path = is_path ? named : "";
    if (path.empty() && !named.empty()) path = find_in_path(caller, named);
    if (named.empty()) path = find_in_path(caller, "mpirun");
    if (named.empty() && path.empty()) path = find_in_path(caller, "mpiexec");
    if (path.empty() && !named.empty())
        return fail(Errc::not_found,
                    "--mpi mpirun: DTRUN_MPIRUN={}: not found in PATH; name another, {}", named,
                    kInstead);
    if (path.empty())
        return fail(Errc::not_found,
                    "--mpi mpirun: PATH has neither mpirun nor mpiexec; install Open MPI or MPICH, "
                    "name one in DTRUN_MPIRUN, {}",
                    kInstead);
    const auto version = command_output({path, "--version"}, Captured::both);
    if (!version) return fail(version.error(), "--mpi mpirun");
    if (version->status != 0) {
        const std::string_view text = trim(version->text);
        return fail(Errc::invalid_input,
                    "--mpi mpirun: {} --version ends with {}: {}; name another in DTRUN_MPIRUN, {}",
                    path, version->status, text.substr(text.rfind('\n') + 1), kInstead);
    }
    auto mpirun = identify_mpirun(path, version->text);
    if (!mpirun)
        return fail(Errc::not_found, "--mpi mpirun: {}; name another in DTRUN_MPIRUN, {}",
                    mpirun.error().message, kInstead);
    return mpirun;
}

Result<MpirunPlan> plan_mpirun(const plan::JobSpec& spec, plan::EnvironmentView caller) {
    auto mpirun = find_mpirun(caller);
    if (!mpirun) return std::unexpected(mpirun.error());
    const MpirunCircumstances here{
        .as_root = ::geteuid() == 0,
        .in_slurm_step = plan::find_variable(caller, "SLURM_STEP_ID").has_value(),
        .hostfile_path = hostfile_path(kHostfileFd)};
    auto command = compose_mpirun(spec, *mpirun, here);
    if (!command) return std::unexpected(command.error());
    return MpirunPlan{std::move(*mpirun), std::move(*command)};
}

Error run_mpirun(const plan::JobSpec& spec, const MpirunCommand& command) {
    std::vector<std::string> words = command.argv;
    Fd hostfile;
    if (!command.hostfile.empty()) {
        auto made = memory_file(command.hostfile);
        if (!made) return made.error();
        hostfile = std::move(*made);
        // The first is ours: what the user gives stands behind it.
        const auto name = std::ranges::find(words, hostfile_path(kHostfileFd));
        if (name != words.end()) *name = hostfile_path(hostfile.get());
    }
    if (spec.options.stdin_target.kind == StdinTarget::Kind::none) {
        const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        ::dup2(nothing.get(), STDIN_FILENO);
    }
    log::info("{}", mpirun_command_text({words, command.environment, ""}));
    const std::vector<std::string> environment = environment_of(spec, command);
    ::signal(SIGPIPE, SIG_DFL);
    ::execve(words.front().c_str(), pointers(words).data(), pointers(environment).data());
    return {Errc::internal, fmt::format("{}: {}", words.front(), std::strerror(errno))};
}

}  // namespace dtrun::mpirun
