#include "launcher/cli/rsh_words.h"

#include "base/strings.h"
#include "launcher/cli/setters.h"

#include <strings.h>
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::cli {
namespace {

/// -p and -i, which dtrun itself can follow.
struct Followed {
    int port = 0;
    std::string key{};
};

/// Whether it says what is so in any case, as that nothing is asked or forwarded, or wants a terminal, which no
/// agent can use: "-q", "-x", "-tt".
bool changes_nothing(std::string_view word) {
    return word.size() > 1 && word.front() == '-' &&
           word.substr(1).find_first_not_of("qxaTtn") == std::string_view::npos;
}

/// Nothing: there are others, for ssh to follow.
std::optional<Followed> read_arguments(const std::vector<std::string>& words) {
    Followed followed;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (changes_nothing(words[i])) continue;
        const std::string_view name = std::string_view(words[i]).substr(0, 2);
        if (name != "-p" && name != "-i") return std::nullopt;
        std::string value = words[i].substr(2);
        if (value.empty() && ++i < words.size()) value = words[i];
        const auto port = to_int(value, 1, kPortMax);
        if (value.empty() || (name == "-p" && !port)) return std::nullopt;
        if (name == "-p")
            followed.port = static_cast<int>(*port);
        else
            followed.key = value;
    }
    return followed;
}

}  // namespace

bool says_yes(std::string_view value) {
    constexpr const char* kYes[] = {"1", "true", "t", "yes", "y", "enabled", "on"};
    const std::string word(value);
    return std::ranges::any_of(
        kYes, [&word](const char* yes) { return ::strcasecmp(yes, word.c_str()) == 0; });
}

bool keep_rsh_word(RshWords& words, std::string_view name, std::string_view value) {
    const bool is_agent =
        name == "plm_rsh_agent" || name == "orte_rsh_agent" || name == "plm_ssh_agent";
    if (is_agent) words.agent = value;
    const bool is_arguments = name == "plm_rsh_args" || name == "plm_ssh_args";
    if (is_arguments) words.arguments = value;
    return is_agent || is_arguments;
}

Result<void> follow_rsh_words(const RshWords& words, plan::Options& options) {
    const std::string agent(trim(words.agent.substr(0, words.agent.find(':'))));
    if (!options.ssh_command.empty() || (agent.empty() && words.arguments.empty())) return {};
    const auto arguments = shell_words(words.arguments);
    if (!arguments || !shell_words(agent))
        return fail(Errc::invalid_input, "a quote in {} is never closed",
                    arguments ? agent : words.arguments);
    const auto followed =
        agent.empty() || agent == "ssh" ? read_arguments(*arguments) : std::nullopt;
    if (followed) {
        if (options.ssh_port == 0) options.ssh_port = followed->port;
        if (options.ssh_identity_file.empty()) options.ssh_identity_file = followed->key;
        return {};
    }
    options.ssh_command = agent.empty() ? "ssh" : agent;
    if (!arguments->empty()) options.ssh_command += " " + words.arguments;
    return {};
}

}  // namespace dtrun::cli
