#include "launcher/frontends/deepspeed_env.h"

#include "base/fd.h"
#include "base/strings.h"
#include "launcher/plan/obeyed_file.h"

#include <unistd.h>
#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun::frontends {
namespace {

/// The mark around a value, which a shell would take away; nothing: none.
char quote_around(std::string_view value) {
    const bool quoted = value.size() > 1 && value.front() == value.back() &&
                        (value.front() == '"' || value.front() == '\'');
    return quoted ? value.front() : '\0';
}

/// The name at the begin of "NAME..." or of "{NAME}...", and how many bytes it takes; an empty one if there is
/// none.
std::pair<std::string_view, std::size_t> name_at(std::string_view text) {
    constexpr std::string_view kStandInName =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    const bool braced = text.starts_with('{');
    const std::string_view begun = text.substr(braced ? 1 : 0);
    const std::string_view name = begun.substr(0, begun.find_first_not_of(kStandInName));
    const bool closed = !braced || begun.substr(name.size()).starts_with('}');
    if (!plan::is_variable_name(name) || !closed) return {};
    return {name, name.size() + (braced ? 2 : 0)};
}

/// Replaces $NAME and ${NAME} as a shell would within double quotes.
class Expander {
public:
    /// \param before  variables of the lines above, the last one counts
    Expander(plan::EnvironmentView caller, std::vector<const DeepspeedEnv*> before)
        : caller_(caller), before_(std::move(before)) {}

    std::string expand(std::string_view value) {
        std::string result;
        for (std::size_t at = 0; at < value.size(); ++at) {
            const std::string_view rest = value.substr(at + 1);
            if (value[at] == '\\' && rest.starts_with('$')) {
                result += value[++at];
                continue;
            }
            const auto [name, size] =
                value[at] == '$' ? name_at(rest) : std::pair<std::string_view, std::size_t>{};
            if (size == 0) {
                const bool is_command =
                    value[at] == '`' || (value[at] == '$' && rest.starts_with('('));
                needs_shell_ =
                    needs_shell_ || is_command || (value[at] == '$' && rest.starts_with('{'));
                result += value[at];
                continue;
            }
            result += value_of(name);
            at += size;
        }
        return result;
    }

    /// Whether a value had something that only a shell could replace.
    bool needs_shell() const { return needs_shell_; }

private:
    std::string_view value_of(std::string_view name) const {
        for (const DeepspeedEnv* const env : before_)
            for (auto each = env->variables.rbegin(); each != env->variables.rend(); ++each)
                if (each->first == name) return each->second;
        return plan::find_variable(caller_, name).value_or("");
    }

    plan::EnvironmentView caller_;
    std::vector<const DeepspeedEnv*> before_;
    bool needs_shell_ = false;
};

}  // namespace

Result<DeepspeedEnv> parse_deepspeed_env(std::string_view text, std::string_view file,
                                         plan::EnvironmentView caller, const DeepspeedEnv& above) {
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
        std::string_view value = trim(line.substr(equals + 1));
        const char quote = quote_around(value);
        if (quote != '\0') value = value.substr(1, value.size() - 2);
        if (value.find('\0') != std::string_view::npos)
            return fail(Errc::invalid_input, "{}:{}:{}: a NUL byte, which no variable can hold",
                        file, number, column);
        if (const auto settable = plan::check_settable(name); !settable) {
            env.notes.push_back(
                fmt::format("{}:{}: left out: {}", file, number, settable.error().message));
            continue;
        }
        if (quote == '\'') {
            env.variables.emplace_back(name, value);
            continue;
        }
        Expander expander(caller, {&env, &above});
        std::string expanded = expander.expand(value);
        if (expander.needs_shell())
            env.notes.push_back(fmt::format(
                "{}:{}: only $NAME and ${{NAME}} are replaced in {}; the rest stays as it is", file,
                number, name));
        env.variables.emplace_back(name, std::move(expanded));
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
        auto env = parse_deepspeed_env(*text, path, environment, all);
        if (!env) return env;
        std::move(env->variables.begin(), env->variables.end(), std::back_inserter(all.variables));
        std::move(env->notes.begin(), env->notes.end(), std::back_inserter(all.notes));
    }
    return all;
}

}  // namespace dtrun::frontends
