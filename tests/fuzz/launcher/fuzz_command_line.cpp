// The words of a command line, one on each line of the input.

#include "base/strings.h"
#include "launcher/cli/cli.h"
#include "tests/fuzz/launcher/promises.h"

#include <algorithm>

using namespace dtrun;
using namespace dtrun::plan;
using namespace dtrun::cli;

namespace {

void check_options(const Options& options, const std::vector<std::string>& words) {
    require(!options.program.empty(), "there is a program");
    require(options.program.size() <= words.size() &&
                std::equal(options.program.rbegin(), options.program.rend(), words.rbegin()),
            "the program is the untouched end of the command line");
    require(!options.world_size || (*options.world_size >= 1 && *options.world_size <= kRanksMax),
            "-np is in its range");
    require(options.ssh_port >= 0 && options.ssh_port <= 65'535, "-p is in its range");
    require(options.grace.count() >= 0 && options.connect_timeout.count() > 0,
            "times are positive");
    require(options.hosts.empty() || options.hostfile.empty(), "one source of hosts");
    require(options.only_ranks.largest() < kRanksMax, "ranks are in their range");
    for (const auto& [name, value] : options.assignments) {
        require(is_variable_name(name), "assignments have names");
        require(check_settable(name).has_value(), "nobody sets dtrun's own variables");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (text.find("conf") != std::string_view::npos) return 0;  // --config-file would be opened
    std::vector<std::string> words;
    for (const std::string_view word : split(text, '\n')) words.emplace_back(word);
    const std::vector<std::string> environment = {"HOROVOD_START_TIMEOUT=" + words.front()};
    for (const EnvironmentView caller : {EnvironmentView{}, EnvironmentView{environment}}) {
        const auto command = parse_command_line(words, caller);
        if (!command) {
            require(command.error().code == Errc::invalid_input, "a mistake is invalid input");
            require(!command.error().message.empty(), "a mistake is explained");
        } else if (command->kind == CommandLine::Kind::run) {
            check_options(command->options, words);
        } else {
            require(!command->text.empty(), "there is something to print");
        }
    }
    return 0;
}
