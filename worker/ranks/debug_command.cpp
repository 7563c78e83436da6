#include "worker/ranks/debug_command.h"

#include "worker/ranks/python_command.h"

#include <fmt/format.h>
#include <utility>
#include <vector>

namespace dtrun::ranks {
namespace {

Result<void> wait_for_debugpy(RankCommand& command, const std::string& address) {
    auto python = python_words(command);
    if (!python)
        return fail(Errc::invalid_input, "{} is no Python program that debugpy could run",
                    command.argv.empty() ? command.path : command.argv.front());
    const auto at = python->words.begin() + static_cast<std::ptrdiff_t>(python->program);
    python->words.insert(at, {"-m", "debugpy", "--listen", address, "--wait-for-client"});
    command.path = std::move(python->path);
    command.argv = std::move(python->words);
    return {};
}

/// gdbserver talks by its own standard input and output, so that the program's are kept for it elsewhere.
Result<void> wait_for_gdb(RankCommand& command, const std::string& directory,
                          const std::string& path) {
    auto server = find_program("gdbserver", command.directory, path);
    if (!server) return std::unexpected(server.error());
    if (!command.path.empty()) command.argv.front() = command.path;
    const std::string own_streams = directory + "/program.sh";
    const std::string script =
        fmt::format("exec \"$@\" 7>&2 8<&0 9>&1 <{0}/in >{0}/out", directory);
    std::vector<std::string> words{"sh", "-c", script, "sh", std::move(*server)};
    for (const std::string& word :
         {std::string("--once"), std::string("--wrapper"), std::string("/bin/sh"), own_streams,
          std::string("--"), std::string("-")})
        words.push_back(word);
    command.argv.insert(command.argv.begin(), words.begin(), words.end());
    command.path = "/bin/sh";
    return {};
}

}  // namespace

Debugger debugger_for(const RankCommand& command, Debugger wanted) {
    if (wanted != Debugger::automatic) return wanted;
    return python_words(command) ? Debugger::debugpy : Debugger::gdb;
}

Result<void> wait_for_debugger(RankCommand& command, Debugger debugger, const std::string& where,
                               const std::string& path) {
    return debugger == Debugger::debugpy ? wait_for_debugpy(command, where)
                                         : wait_for_gdb(command, where, path);
}

}  // namespace dtrun::ranks
