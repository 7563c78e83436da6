// The words of a command line, one on each line of the input.

#include "base/strings.h"
#include "lab/plan/flags.h"
#include "launcher/cli/run.h"
#include "launcher/commands/hosts_command.h"
#include "launcher/commands/join.h"
#include "launcher/commands/serve.h"
#include "launcher/commands/store_command.h"
#include "launcher/frontends/torchrun.h"
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

/// What a mistake must be, whatever command it was in.
template <class Parsed>
bool is_right(const Result<Parsed>& parsed) {
    if (parsed) return parsed->asked == Ask::nothing;
    require(parsed.error().code == Errc::invalid_input, "a mistake is invalid input");
    require(!parsed.error().message.empty(), "a mistake is explained");
    return false;
}

/// Commands whose words end with a program.
Result<RunCommand> parse_job(std::string_view name, Words words, EnvironmentView caller) {
    if (name == "join") return commands::parse_join(words.subspan(1), caller);
    return parse_run(name == "run" ? words.subspan(1) : words, caller);
}

void check(const std::vector<std::string>& words, EnvironmentView caller) {
    const std::string& name = words.front();
    const Words rest = Words(words).subspan(1);
    if (name == "serve")
        is_right(commands::parse_serve(rest));
    else if (name == "store")
        is_right(commands::parse_store(rest));
    else if (name == "status")
        is_right(commands::parse_status(rest));
    else if (name == "hosts")
        is_right(commands::parse_hosts_command(rest));
    else if (name == "bench")
        is_right(lab::parse_bench(rest));
    else if (name == "torchrun")
        is_right(frontends::parse_torchrun(rest, caller));
    else if (const auto command = parse_job(name, words, caller); is_right(command))
        check_options(command->options, words);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    // --config-file, also abbreviated, would be opened.
    for (const std::string_view name : {"conf", "--co"})
        if (text.find(name) != std::string_view::npos) return 0;
    std::vector<std::string> words;
    for (const std::string_view word : split(text, '\n')) words.emplace_back(word);
    const std::vector<std::string> environment = {"HOROVOD_START_TIMEOUT=" + words.front()};
    for (const EnvironmentView caller : {EnvironmentView{}, EnvironmentView{environment}})
        check(words, caller);
    return 0;
}
