#include "worker/ranks/rank_process.h"

#include "base/strings.h"
#include "worker/ranks/rank_terminal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace dtrun::ranks {
namespace {

/// Room for bursts, so that a rank that prints seldom waits for us, and not more than caches hold.
constexpr int kPipeBytes = 256 << 10;

/// As much of a file as Linux looks at.
std::string begin_of(const std::string& file) {
    char begin[256];
    const Fd script(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    const ssize_t n = script ? ::read(script.get(), begin, sizeof begin) : 0;
    return {begin, static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
}

/// What stands behind "#!" in a script's first line; empty: it has none.
std::string_view interpreter_line_of(std::string_view begin) {
    const std::string_view line = begin.substr(0, begin.find('\n'));
    return line.starts_with("#!") ? line.substr(2) : "";
}

/// A text of Python for which no interpreter is named: sh would be started, for which its imports are commands.
bool is_bare_python(std::string_view file, std::string_view begin) {
    return file.ends_with(".py") && !begin.empty() && !begin.starts_with("#!") &&
           begin.find('\0') == std::string_view::npos;
}

Result<void> check_executable(const std::string& file, const std::string& shown) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) {
        if (errno == EACCES) return fail(Errc::denied, "{}: {}", shown, strerror(errno));
        return fail(Errc::not_found, "{}: no such file", shown);
    }
    if (S_ISDIR(info.st_mode)) return fail(Errc::denied, "{}: is a directory", shown);
    if (::access(file.c_str(), X_OK) != 0)
        return fail(Errc::denied, "{}: not executable (chmod +x, or run it with its interpreter)",
                    shown);
    const std::string begin = begin_of(file);
    const std::string_view line = interpreter_line_of(begin);
    if (is_bare_python(file, begin))
        return fail(Errc::denied,
                    "{}: has no first line such as #!/usr/bin/env python3; write python3 before it",
                    shown);
    if (line.ends_with('\r'))
        return fail(
            Errc::not_found,
            "{}: its first line ends with a carriage return, as files of Windows do; convert it: "
            "sed -i 's/\\r$//' {}",
            shown, shown);
    const std::string interpreter(trim(line).substr(0, trim(line).find_first_of(" \t")));
    if (!interpreter.empty() && ::access(interpreter.c_str(), F_OK) != 0)
        return fail(Errc::not_found, "{}: its interpreter {} is not there", shown, interpreter);
    return {};
}

/// \return refers to `command`
ProcessPlan plan_for(const RankCommand& command, int in, int out, int err) {
    ProcessPlan plan{.path = command.path, .argv = command.argv, .env = command.env};
    plan.descriptors = {{in, STDIN_FILENO}, {out, STDOUT_FILENO}, {err, STDERR_FILENO}};
    if (command.inherited > 2) plan.descriptors.push_back({command.inherited, command.inherited});
    plan.close_others = true;
    plan.directory = command.directory.c_str();
    plan.group =
        command.own_session ? ProcessPlan::Group::own_session : ProcessPlan::Group::own_group;
    plan.death_signal = SIGKILL;
    plan.may_be_traced = true;
    plan.descriptor_limit = command.descriptor_limit;
    plan.cpus = command.cpus;
    return plan;
}

Result<RankProcess> spawn_with_terminal(const RankCommand& command) {
    auto terminal = open_terminal(*command.terminal);
    if (!terminal) return std::unexpected(terminal.error());
    const int slave = terminal->slave.get();
    ProcessPlan plan = plan_for(command, slave, slave, slave);
    plan.controlling_terminal = true;
    auto spawned = spawn_without_waiting(plan);
    if (!spawned) return std::unexpected(spawned.error());
    return RankProcess{
        spawned->pid, {}, {}, {}, std::move(spawned->executed), std::move(terminal->master)};
}

}  // namespace

Result<RankProcess> spawn_rank(const RankCommand& command) {
    if (command.terminal) return spawn_with_terminal(command);
    auto out = make_pipe();
    auto err = make_pipe();
    for (const auto* made : {&out, &err})
        if (!*made) return std::unexpected(made->error());
    Pipe in;
    if (command.wants_input) {
        auto made = make_pipe();
        if (!made) return std::unexpected(made.error());
        in = std::move(*made);
    }
    ::fcntl(out->write.get(), F_SETPIPE_SZ, kPipeBytes);  // a limit of the system may forbid it
    for (Fd* fd : {&in.write, &out->read, &err->read}) {
        if (!*fd) continue;
        if (::fcntl(fd->get(), F_SETFL, O_NONBLOCK) != 0)
            return fail(Errc::internal, "fcntl: {}", strerror(errno));
        leave_low_numbers(*fd);
    }
    const ProcessPlan plan = plan_for(command, in.read ? in.read.get() : ProcessPlan::kNull,
                                      out->write.get(), err->write.get());
    auto spawned = spawn_without_waiting(plan);
    if (!spawned) return std::unexpected(spawned.error());
    return RankProcess{spawned->pid, std::move(in.write), std::move(out->read),
                       std::move(err->read), std::move(spawned->executed)};
}

std::optional<Result<void>> exec_result(ExecStatus& executed) {
    const auto known = executed.result();
    if (!known) return std::nullopt;
    if (known->has_value()) return Result<void>{};
    const ExecFailure& failure = known->error();
    if (failure.cause == ENOENT && failure.stage == ExecFailure::Stage::execute)
        return fail(failure.code(),
                    "cannot execute: the loader or interpreter that the file names is not there");
    if (failure.cause == ENOEXEC) {
        utsname here{};
        ::uname(&here);
        return fail(failure.code(),
                    "cannot execute: a program for other processors than this host's ({}), or a "
                    "damaged file",
                    here.machine);
    }
    if (failure.cause == E2BIG)
        return fail(failure.code(),
                    "{}: one argument or variable may have 128 KiB, and all together a quarter of "
                    "ulimit -s",
                    failure.message());
    return fail(failure.code(), "{}", failure.message());
}

Result<std::string> find_program(const std::string& program, const std::string& directory,
                                 const std::string& path) {
    const auto from_directory = [&directory](const std::string& file) {
        return file.starts_with('/') ? file : directory + "/" + file;
    };
    if (program.find('/') != std::string::npos) {
        const std::string file = from_directory(program);
        if (auto done = check_executable(file, program); !done)
            return std::unexpected(done.error());
        return file;
    }
    std::optional<Error> unusable;
    for (const std::string_view part : split(path, ':')) {
        const std::string file =
            from_directory(part.empty() ? "." : std::string(part)) + "/" + program;
        const auto done = check_executable(file, file);
        if (done) return file;
        const bool is_there =
            done.error().code == Errc::denied || ::access(file.c_str(), F_OK) == 0;
        if (is_there && !unusable) unusable = done.error();
    }
    if (unusable) return std::unexpected(*unusable);
    const std::string here = from_directory(program);
    struct stat found {};
    if (::stat(here.c_str(), &found) == 0 && !S_ISDIR(found.st_mode)) {
        const bool runs = ::access(here.c_str(), X_OK) == 0;
        const char* const interpreter = program.ends_with(".sh") ? "sh" : "python3";
        const std::string before =
            runs ? "./" : fmt::format("its interpreter first, e.g. {} ", interpreter);
        return fail(Errc::not_found,
                    "{}: not found on PATH; there is one in the working directory: write {}{}",
                    program, before, program);
    }
    if (program == "python" && find_program("python3", directory, path))
        return fail(Errc::not_found, "python: not found on PATH, but python3 is there");
    return fail(Errc::not_found, "{}: not found on PATH\nPATH={}", program, path);
}

}  // namespace dtrun::ranks
