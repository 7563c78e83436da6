#include "worker/agent/store_program.h"

#include "base/log.h"
#include "base/own_program.h"
#include "base/standard_streams.h"
#include "base/strings.h"
#include "base/system_floor.h"
#include "rendezvous/asking/store_run.h"
#include "worker/ranks/agent_directories.h"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace dtrun::agent {
namespace {

using asking::StoreOrder;

constexpr double kSecondsMax = 31'536'000;  // as the flag of an installed dtrun: a year
constexpr std::string_view kOptions = R"(
Options:
  --timeout SECONDS  how long to wait for what does not exist yet, or is locked
                     (default: get and pop do not, wait, watch and lock have
                     no limit)
  -0, --null         ls: a NUL behind each key; watch: behind each state, which
                     is =VALUE, - when the key was removed, or * for a queue
  --prefix           rm: all keys that begin with KEY, whose number is printed;
                     watch: every change of them, in lines of key, tab and state
  --ttl SECONDS      set: how long the key is there
  --value TEXT       lock: what NAME holds meanwhile (default: HOST:PID)

dtrun is not installed on this host. This is the agent of the job, which asks
for the store of its own job only.
)";

/// Options that have a value, and what it is.
constexpr std::pair<std::string_view, std::string_view> kWithValue[] = {
    {"--timeout", "SECONDS"}, {"--ttl", "SECONDS"}, {"--value", "TEXT"}};

/// Options of `dtrun store` that lead to a daemon.
constexpr std::array<std::string_view, 5> kOfDaemons{"--server", "--job", "--secret-file",
                                                     "--secret-fd", "--encrypt"};

Result<std::chrono::milliseconds> parse_seconds(std::string_view option, std::string_view text) {
    double seconds = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, seconds);
    if (error != std::errc{} || stopped != end || !(seconds >= 0 && seconds <= kSecondsMax))
        return fail(Errc::invalid_input, "{}: '{}' is not a number of seconds", option, text);
    return std::chrono::milliseconds(std::llround(seconds * 1000));
}

/// \param option  of kWithValue
Result<void> set_option(StoreOrder& order, std::string_view option, std::string_view value) {
    if (option == "--value") {
        order.holder = value;
        return {};
    }
    const auto time = parse_seconds(option, value);
    if (!time) return std::unexpected(time.error());
    (option == "--ttl" ? order.ttl : order.timeout) = *time;
    return {};
}

Error unknown(std::string_view option) {
    if (std::ranges::find(kOfDaemons, option) != kOfDaemons.end())
        return {Errc::invalid_input,
                fmt::format("{}: dtrun is not installed on this host; its agent, which this is, "
                            "asks for the store of its own job only",
                            option)};
    return {Errc::invalid_input,
            fmt::format("there is no option {}; see dtrun store --help", escaped(option))};
}

int complain(const Error& error) {
    log::error("{}", error.message);
    return asking::kStoreUsage;
}

Result<asking::StoreServer> own_agent() {
    const char* const socket = std::getenv("DTRUN_SOCKET");
    if (socket == nullptr || *socket == '\0')
        return fail(Errc::invalid_input,
                    "dtrun is not installed on this host; its agent, which this is, asks for the "
                    "store of a rank's job, and DTRUN_SOCKET is not set here");
    asking::StoreServer server;
    server.agent_socket = socket;
    return server;
}

}  // namespace

Result<std::string> make_store_program(const std::string& prefix) {
    const auto own = own_program();
    if (!own) return own;
    auto folder =
        ranks::make_directory(prefix, ranks::kDirectoryParents, ranks::DirectoryUse::names);
    if (!folder) return folder;
    const std::string link = fmt::format("{}/{}", *folder, kStoreProgram);
    if (::symlink(own->c_str(), link.c_str()) != 0)
        return fail(Errc::internal, "{}: {}", link, std::strerror(errno));
    return folder;
}

void add_to_path(const std::string& folder, contracts::Environment& env) {
    const auto path = env.find("PATH");
    if (path != env.end() && !path->second.empty()) path->second += ":" + folder;
}

Result<std::optional<StoreOrder>> parse_store_words(std::span<const std::string> words) {
    StoreOrder order;
    std::optional<asking::StoreVerb> verb;
    bool ended = false;  // of options
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        const bool in_command = verb && verb->is_in_command(order.operands);
        if (ended || in_command || word.size() < 2 || word.front() != '-') {
            if (verb) {
                order.operands.push_back(word);
                continue;
            }
            auto found = asking::find_store_verb(word);
            if (!found) return std::unexpected(found.error());
            verb = *found;
            continue;
        }
        const std::size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        if (word == "--") {
            ended = true;
        } else if (word == "--help" || word == "-h") {
            return std::nullopt;
        } else if (word == "-0" || word == "--null") {
            order.nul = true;
        } else if (word == "--prefix") {
            order.is_prefix = true;
        } else if (const auto* const option =
                       std::ranges::find(kWithValue, name, [](auto& row) { return row.first; });
                   option != std::end(kWithValue)) {
            const bool inside = equals != std::string::npos;
            if (!inside && ++i == words.size())
                return fail(Errc::invalid_input, "{0} needs a value: {0} {1}", name,
                            option->second);
            const auto set = set_option(
                order, name,
                inside ? std::string_view(word).substr(equals + 1) : std::string_view(words[i]));
            if (!set) return std::unexpected(set.error());
        } else {
            return std::unexpected(unknown(name));
        }
    }
    if (!verb) return std::unexpected(asking::find_store_verb("").error());
    if (const auto right = asking::take_verb(order, *verb); !right)
        return std::unexpected(right.error());
    return order;
}

int run_store_program(std::span<const std::string> words) {
    open_standard_streams();
    log::init("dtrun", log::Level::normal);
    if (const auto lacking = lacking_in_system()) {
        complain({Errc::internal, *lacking});
        return asking::kStoreInternal;
    }
    if (words.empty() || words.front() != "store")
        return complain({Errc::invalid_input,
                         "dtrun is not installed on this host: this is the agent of a job, of "
                         "which ranks have `dtrun store` only (pip install dtrun)"});
    const auto order = parse_store_words(words.subspan(1));
    if (!order) return complain(order.error());
    if (!*order) return asking::put(asking::store_words_help() + std::string(kOptions));
    return asking::carry_out(**order, {.find_server = own_agent});
}

}  // namespace dtrun::agent
