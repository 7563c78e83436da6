#include "launcher/frontends/deepspeed_env.h"

#include "base/fd.h"
#include "base/strings.h"
#include "launcher/plan/obeyed_file.h"

#include <unistd.h>
#include <iterator>
#include <utility>

namespace dtrun::frontends {
namespace {

/// Without the quotes around it, which a shell would take away.
std::string_view unquoted(std::string_view value) {
    const bool quoted = value.size() > 1 && value.front() == value.back() &&
                        (value.front() == '"' || value.front() == '\'');
    return quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

Result<DeepspeedEnv> parse_deepspeed_env(std::string_view text, std::string_view file) {
    DeepspeedEnv env;
    int number = 0;
    for (const std::string_view whole : split(text, '\n')) {
        ++number;
        const std::string_view line = trim(whole);
        if (line.empty() || line.starts_with('#')) continue;
        const std::size_t equals = line.find('=');
        const std::string_view name = trim(line.substr(0, equals));
        const auto column = static_cast<std::size_t>(line.data() - whole.data()) + 1;
        if (equals == std::string_view::npos)
            return fail(Errc::invalid_input, "{}:{}:{}: expected NAME=VALUE", file, number, column);
        if (!plan::is_variable_name(name))
            return fail(Errc::invalid_input, "{}:{}:{}: '{}' is not a variable's name", file,
                        number, column, name);
        const std::string_view value = unquoted(trim(line.substr(equals + 1)));
        if (value.find('\0') != std::string_view::npos)
            return fail(Errc::invalid_input, "{}:{}:{}: a NUL byte, which no variable can hold",
                        file, number, column);
        if (const auto settable = plan::check_settable(name); !settable) {
            env.notes.push_back(
                fmt::format("{}:{}: left out: {}", file, number, settable.error().message));
            continue;
        }
        env.variables.emplace_back(name, value);
    }
    return env;
}

Result<DeepspeedEnv> read_deepspeed_env(plan::EnvironmentView environment) {
    const auto named = plan::find_variable(environment, "DS_ENV_FILE");
    const bool is_named = named.has_value();
    const std::string file(named.value_or(".deepspeed_env"));
    const std::string home(plan::find_variable(environment, "HOME").value_or(""));
    std::vector<std::string> paths;
    if (file.starts_with('/'))
        paths = {file};
    else if (home.empty())
        paths = {file};
    else
        paths = {home + "/" + file, file};
    DeepspeedEnv all;
    for (const std::string& path : paths) {
        if (::access(path.c_str(), F_OK) != 0) continue;
        const auto text = is_named ? read_file(path) : plan::read_obeyed_file(path);
        if (!text && !is_named && text.error().code == Errc::denied) {
            all.notes.push_back(text.error().message + "; it is not read");
            continue;
        }
        if (!text) return std::unexpected(text.error());
        auto env = parse_deepspeed_env(*text, path);
        if (!env) return env;
        std::move(env->variables.begin(), env->variables.end(), std::back_inserter(all.variables));
        std::move(env->notes.begin(), env->notes.end(), std::back_inserter(all.notes));
    }
    return all;
}

}  // namespace dtrun::frontends
