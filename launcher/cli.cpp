#include "launcher/cli.h"

#include "base/fd.h"
#include "base/strings.h"
#include "launcher/cli_flags.h"
#include "launcher/horovod_config.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun {

namespace {

using std::string_view;
using Words = std::span<const std::string>;

bool is_option(string_view word) {
    return word.size() > 1 && word.starts_with('-');
}

/// "b:4" or "user@b:4": a -H item with its slots.
bool looks_like_host_slots(string_view word) {
    while (word.ends_with(',')) word.remove_suffix(1);
    const std::size_t colon = word.rfind(':');
    if (colon == 0 || colon == string_view::npos || !to_int(word.substr(colon + 1), 0, kSlotsMax))
        return false;
    return std::ranges::all_of(word.substr(0, colon), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               string_view("._-@[]").find(c) != string_view::npos;
    });
}

/// Reads the words of one `dtrun run` from left to right.
class RunReader {
public:
    explicit RunReader(Words words) : words_(words) {}

    /// Stops early at --help and its like.
    Result<Draft> read() {
        bool ended = false;
        while (at_ < words_.size() && is_option(words_[at_]) && !ended) {
            ended = words_[at_] == "--";
            if (ended)
                ++at_;
            else if (const auto done = option(); !done)
                return std::unexpected(done.error());
            if (draft_.kind != CommandLine::Kind::run) return std::move(draft_);
        }
        if (!ended)
            if (const auto done = hosts_apart(); !done) return std::unexpected(done.error());
        if (const auto done = assignments(ended); !done) return std::unexpected(done.error());
        if (at_ == words_.size())
            return fail(Errc::invalid_input, "no program to run; {} (dtrun --help tells more)",
                        usage_line());
        draft_.options.program.assign(words_.begin() + at_, words_.end());
        return std::move(draft_);
    }

private:
    Result<void> option() {
        const auto found = find_flag(words_[at_++]);
        if (!found) return std::unexpected(found.error());
        const Flag& flag = *found->flag;
        if (!flag.refused.empty())
            return fail(Errc::invalid_input, "{} is refused: {}", found->name, flag.refused);
        const auto value = option_value(*found);
        if (!value) return std::unexpected(value.error());
        const auto applied = flag.apply(draft_, *value);
        if (!applied) return fail(applied.error(), "{}", found->name);
        return {};
    }

    Result<string_view> option_value(const FoundFlag& found) {
        const Flag::Value kind = found.flag->value();
        if (found.attached) {
            if (kind == Flag::Value::none)
                return fail(Errc::invalid_input, "{} takes no value", found.name);
            if (found.attached->empty())
                return fail(Errc::invalid_input, "{}: the value is empty", found.name);
            return *found.attached;
        }
        if (kind != Flag::Value::required) return string_view{};
        if (at_ == words_.size())
            return fail(Errc::invalid_input, "{} needs a value: {} {}", found.name, found.name,
                        found.flag->metavar);
        const string_view next = words_[at_];
        const bool is_number =
            next.size() > 1 && (next[1] == '.' || (next[1] >= '0' && next[1] <= '9'));
        if (is_option(next) && !is_number)
            return fail(Errc::invalid_input,
                        "{} needs a value: {} {} (with '=' if it begins with a dash)", found.name,
                        found.name, found.flag->metavar);
        if (next.empty()) return fail(Errc::invalid_input, "{}: the value is empty", found.name);
        ++at_;
        return next;
    }

    /// `-H a:1 b:1 prog`: the second host would be taken for the program.
    Result<void> hosts_apart() const {
        if (draft_.options.hosts.empty() || at_ == words_.size()) return {};
        std::string joined(draft_.options.hosts);
        std::size_t at = at_;
        for (; at < words_.size() && looks_like_host_slots(words_[at]); ++at) {
            if (!joined.ends_with(',')) joined += ',';
            joined += words_[at];
        }
        if (at == at_) return {};
        while (joined.ends_with(',')) joined.pop_back();
        return fail(Errc::invalid_input,
                    "'{}' is a host, not a program: -H takes one word without blanks; write -H {}",
                    words_[at_], joined);
    }

    Result<void> assignments(bool options_ended) {
        for (; at_ < words_.size(); ++at_) {
            const string_view word = words_[at_];
            if (is_option(word) && !options_ended)
                return fail(Errc::invalid_input,
                            "{} stands after {}=...; options go before, and -- before a program "
                            "that begins with a dash",
                            word, draft_.options.assignments.back().first);
            const std::size_t equals = word.find('=');
            const string_view name = word.substr(0, equals);
            if (equals == string_view::npos || !is_variable_name(name)) return {};
            if (const auto settable = check_settable(name); !settable)
                return fail(settable.error(), "{}=...", name);
            draft_.options.assignments.emplace_back(name, word.substr(equals + 1));
        }
        return {};
    }

    Words words_;
    std::size_t at_ = 0;
    Draft draft_;
};

Result<void> check_conflicts(const Options& options) {
    if (!options.hosts.empty() && !options.hostfile.empty())
        return fail(Errc::invalid_input, "-H and --hostfile exclude each other; give one of them");
    if (!options.include.empty() && !options.exclude.empty())
        return fail(Errc::invalid_input,
                    "--include and --exclude exclude each other; give one of them");
    return {};
}

Result<void> add_config_file(Draft& draft) {
    if (draft.config_file.empty()) return {};
    const auto text = read_file(draft.config_file);
    if (!text) return fail(text.error(), "--config-file");
    auto values = parse_horovod_config(*text, draft.config_file);
    if (!values) return std::unexpected(values.error());
    draft.tuning.merge(*values);  // keeps what flags said
    return {};
}

Result<void> add_start_timeout(Options& options, EnvironmentView environment) {
    constexpr string_view kName = "HOROVOD_START_TIMEOUT";
    const auto text = find_variable(environment, kName);
    if (options.start_timeout || !text || text->empty()) return {};
    const auto time = parse_seconds(*text, kTimeoutMin, kTimeoutMax);
    if (!time) return fail(time.error(), "{} (in the environment)", kName);
    options.start_timeout = *time;
    return {};
}

void add_tuning_env(Draft& draft, CommandLine& command) {
    HorovodEnvironment horovod = horovod_environment(draft.tuning);
    command.warnings = std::move(horovod.warnings);
    std::vector<Options::Variable>& variables = draft.options.tuning_env;
    variables = std::move(horovod.variables);
    if (draft.tcp) variables.emplace_back("NCCL_IB_DISABLE", "1");
    const std::vector<std::string>& interfaces = draft.options.network_interfaces;
    if (interfaces.empty()) return;
    const std::string all = fmt::format("{}", fmt::join(interfaces, ","));
    variables.emplace_back("NCCL_SOCKET_IFNAME", all);
    variables.emplace_back("GLOO_SOCKET_IFNAME", all);
    variables.emplace_back("HOROVOD_GLOO_IFACE", interfaces.front());
}

std::string version_text() {
    return DTRUN_VERSION "\n";
}

std::string check_build_text() {
    return "dtrun v" DTRUN_VERSION
           ":\n"
           "\n"
           "Starts ranks on:\n"
           "    [X] this machine\n"
           "    [X] other hosts, over ssh\n"
           "\n"
           "Gives each rank the environment of:\n"
           "    [X] dtrun\n"
           "    [X] Horovod\n"
           "    [X] torchrun\n"
           "    [X] DeepSpeed\n"
           "\n"
           "Frameworks are the program's own: none is compiled in, and none is needed.\n";
}

CommandLine text_command(CommandLine::Kind kind) {
    CommandLine command;
    command.kind = kind;
    command.text = kind == CommandLine::Kind::help      ? run_help()
                   : kind == CommandLine::Kind::version ? version_text()
                                                        : check_build_text();
    return command;
}

Result<CommandLine> parse_run(Words words, EnvironmentView environment) {
    auto draft = RunReader(words).read();
    if (!draft) return std::unexpected(draft.error());
    if (draft->kind != CommandLine::Kind::run) return text_command(draft->kind);
    if (const auto done = check_conflicts(draft->options); !done)
        return std::unexpected(done.error());
    if (const auto done = add_config_file(*draft); !done) return std::unexpected(done.error());
    if (const auto done = add_start_timeout(draft->options, environment); !done)
        return std::unexpected(done.error());
    CommandLine command;
    add_tuning_env(*draft, command);
    command.options = std::move(draft->options);
    return command;
}

Result<CommandLine> parse_help(Words words, EnvironmentView) {
    CommandLine command = text_command(CommandLine::Kind::help);
    if (words.empty() || words[0] == "run") return command;
    if (words[0] != "environment" && words[0] != "man")
        return fail(
            Errc::invalid_input,
            "no help on '{}'; there is: dtrun help run, dtrun help environment, dtrun help man",
            words[0]);
    command.text = words[0] == "man" ? man_page() : environment_help();
    return command;
}

struct SubCommand {
    string_view name;
    Result<CommandLine> (*parse)(Words words, EnvironmentView environment);
};

constexpr SubCommand kSubCommands[] = {
    {"run", parse_run},
    {"help", parse_help},
};

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& args,
                                       EnvironmentView environment) {
    const Words words(args);
    for (const SubCommand& candidate : kSubCommands)
        if (!words.empty() && words[0] == candidate.name)
            return candidate.parse(words.subspan(1), environment);
    return parse_run(words, environment);
}

}  // namespace dtrun
