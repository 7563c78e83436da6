#include "worker/ranks/debug_command.h"

#include "worker/ranks/python_command.h"

#include <algorithm>
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

Result<void> wait_for_gdb(RankCommand& command, const std::string& terminal,
                          const std::string& path) {
    auto server = find_program("gdbserver", command.directory, path);
    if (!server) return std::unexpected(server.error());
    if (!command.path.empty()) command.argv.front() = command.path;
    // Without a shell between, which may have files of its own to read; but only that can have such words.
    const bool needs_shell = std::ranges::any_of(command.argv, [](const std::string& word) {
        return word.empty() || word.find_first_of(" \t\n") != std::string::npos;
    });
    std::vector<std::string> words{"gdbserver"};
    if (!needs_shell) words.emplace_back("--no-startup-with-shell");
    words.push_back(terminal);
    command.argv.insert(command.argv.begin(), words.begin(), words.end());
    command.path = std::move(*server);
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
