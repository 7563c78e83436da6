#include "launcher/cli/defaults.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "launcher/plan/obeyed_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>
#include <algorithm>
#include <optional>
#include <utility>

namespace dtrun::cli {
namespace {

using std::string_view;

constexpr string_view kMachineFile = "/etc/dtrun/config.yaml";
constexpr string_view kProfiles = "profiles";
constexpr int kProfileLayer = 2, kOptionsLayer = 3;
/// These make no job, are of one job alone, or say where defaults come from.
constexpr string_view kNeverDefaults[] = {"--help",   "--version", "--check-build", "--profile",
                                          "--detach", "--name",    "--again"};

template <class... A>
std::unexpected<Error> fail_at(const std::string& place, fmt::format_string<A...> text,
                               A&&... args) {
    return fail(Errc::invalid_input, "{}: {}", place, fmt::format(text, std::forward<A>(args)...));
}

/// With its dashes, or without as in a file.
const Flag* find_flag_of_file(std::span<const Flag> flags, string_view name) {
    for (const char* const dashes : {"", "--", "-"})
        if (const Flag* const flag = find_flag(flags, fmt::format("{}{}", dashes, name)))
            return flag;
    return nullptr;
}

std::vector<std::string> names_in_files(std::span<const Flag> flags) {
    std::vector<std::string> names;
    for (const Flag& flag : flags) {
        if (!flag.refused.empty() || flag.group == FlagGroup::foreign) continue;
        const string_view name = flag.first_name();
        names.emplace_back(name.substr(std::min(name.find_first_not_of('-'), name.size())));
    }
    return names;
}

/// One of these may not be given with the other.
bool exclude_each_other(const Flag& a, const Flag& b) {
    const auto has = [](string_view list, string_view name) {
        const auto names = split(list, ' ');
        return std::ranges::find(names, name) != names.end();
    };
    return has(a.excludes, b.first_name()) || has(b.excludes, a.first_name());
}

class DefaultsReader {
public:
    explicit DefaultsReader(std::span<const Flag> flags) : flags_(flags) {}

    /// \param optional  it need not be there, and must not be of others: nobody has named it. The machine's is of
    ///                  who runs that, whoever it is here
    Result<void> read_file_of(const std::string& path, int layer, bool optional,
                              const std::string& profile) {
        const bool must_be_ours = optional && path != kMachineFile;
        const auto text = must_be_ours ? plan::read_obeyed_file(path) : read_file(path);
        if (!text && optional && text.error().code == Errc::not_found) return {};
        if (!text && must_be_ours && text.error().code == Errc::denied) {
            log::warn("{}; it is not read", text.error().message);
            return {};
        }
        if (!text) return std::unexpected(text.error());
        try {
            return read_root(YAML::Load(*text), path, layer, profile);
        } catch (const YAML::Exception& error) {
            return fail_at(place(path, error.mark), "{}", error.msg);
        }
    }

    Result<void> read_options_of(const std::string& text) {
        const auto words = shell_words(text);
        if (!words) return fail_at("DTRUN_OPTIONS", "a quote is never closed");
        OptionReader reader(*words, flags_, "dtrun");
        for (;;) {
            const auto found = reader.next();
            if (!found) return fail(found.error(), "DTRUN_OPTIONS");
            if (!*found) break;
            add(flags_[(*found)->row], (*found)->value, "DTRUN_OPTIONS", kOptionsLayer);
        }
        if (!reader.rest().empty())
            return fail_at("DTRUN_OPTIONS", "'{}' is no option", reader.rest().front());
        return {};
    }

    bool has_profile() const { return has_profile_; }
    const std::vector<std::string>& profiles() const { return profiles_; }

    /// Marks what is beaten.
    std::vector<Default> take() {
        for (Default& one : found_) {
            const Flag& flag = *find_flag(flags_, one.flag);
            for (const Default& other : found_) {
                if (other.layer <= one.layer || !one.beaten_by.empty()) continue;
                const bool same = other.flag == one.flag && !flag.adds_up;
                if (same || exclude_each_other(flag, *find_flag(flags_, other.flag)))
                    one.beaten_by = other.source;
            }
        }
        return std::move(found_);
    }

private:
    static std::string place(const std::string& path, const YAML::Mark& mark) {
        return mark.is_null() ? path
                              : fmt::format("{}:{}:{}", path, mark.line + 1, mark.column + 1);
    }

    Result<void> read_root(const YAML::Node& root, const std::string& path, int layer,
                           const std::string& profile) {
        if (root.IsNull()) return {};
        if (!root.IsMap())
            return fail_at(place(path, root.Mark()), "expected options such as 'grace: 10'");
        for (const auto& entry : root) {
            const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
            const auto done = name == kProfiles
                                  ? read_profiles(entry.second, path, profile)
                                  : read_entry(entry.first, entry.second, path, layer);
            if (!done) return done;
        }
        return {};
    }

    Result<void> read_profiles(const YAML::Node& profiles, const std::string& path,
                               const std::string& wanted) {
        if (profiles.IsNull()) return {};
        if (!profiles.IsMap())
            return fail_at(place(path, profiles.Mark()), "expected names, each with options");
        for (const auto& entry : profiles) {
            const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
            profiles_.push_back(name);
            if (!entry.second.IsMap() && !entry.second.IsNull())
                return fail_at(place(path, entry.second.Mark()), "expected options of '{}'", name);
            const bool is_wanted = name == wanted;
            has_profile_ = has_profile_ || is_wanted;
            // What is not wanted now is checked as well, or it would fail on another day.
            const std::size_t before = found_.size();
            for (const auto& option : entry.second)
                if (const auto done = read_entry(option.first, option.second, path, kProfileLayer);
                    !done)
                    return done;
            if (!is_wanted) found_.resize(before);
        }
        return {};
    }

    Result<void> read_entry(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                            int layer) {
        const std::string name = key.IsScalar() ? key.Scalar() : "";
        const Flag* const flag = find_flag_of_file(flags_, name);
        const std::string at = place(path, key.Mark());
        if (flag == nullptr ||
            std::ranges::find(kNeverDefaults, flag->first_name()) != std::end(kNeverDefaults))
            return fail_at(at, "dtrun run has no option '{}'{}", name,
                           did_you_mean(name, names_in_files(flags_)));
        if (!flag->refused.empty()) return fail_at(at, "{}: {}", name, flag->refused);
        if (value.IsSequence()) {
            for (const YAML::Node& item : value) {
                if (!item.IsScalar()) return fail_at(place(path, item.Mark()), "expected a value");
                add(*flag, item.Scalar(), at, layer);
            }
            return {};
        }
        if (!value.IsScalar()) return fail_at(at, "'{}' needs a value", name);
        if (flag->value() != Flag::Value::none) {
            const bool may_stand_alone = flag->value() != Flag::Value::required;
            if (may_stand_alone && value.Scalar() == "false") return {};
            const bool alone = may_stand_alone && value.Scalar() == "true";
            add(*flag, alone ? "" : value.Scalar(), at, layer);
            return {};
        }
        if (value.Scalar() != "true" && value.Scalar() != "false")
            return fail_at(at, "'{}' is true or false", name);
        if (value.Scalar() == "true") add(*flag, "", at, layer);
        return {};
    }

    void add(const Flag& flag, const std::string& value, std::string source, int layer) {
        Default one;
        one.flag = flag.first_name();
        one.word = one.flag;
        if (!value.empty()) one.word += "=" + value;
        one.source = std::move(source);
        one.layer = layer;
        found_.push_back(std::move(one));
    }

    std::span<const Flag> flags_;
    std::vector<Default> found_;
    std::vector<std::string> profiles_;
    bool has_profile_ = false;
};

}  // namespace

std::vector<std::string> default_files(plan::EnvironmentView environment) {
    if (const auto own = plan::find_variable(environment, "DTRUN_CONFIG")) {
        if (own->empty()) return {};
        return {std::string(*own)};
    }
    std::vector<std::string> files{std::string(kMachineFile)};
    const auto config = plan::find_variable(environment, "XDG_CONFIG_HOME");
    const auto home = plan::find_variable(environment, "HOME");
    if (config && config->starts_with('/'))
        files.push_back(fmt::format("{}/dtrun/config.yaml", *config));
    else if (home && home->starts_with('/'))
        files.push_back(fmt::format("{}/.config/dtrun/config.yaml", *home));
    return files;
}

Result<std::vector<Default>> read_defaults(std::span<const Flag> flags,
                                           plan::EnvironmentView environment,
                                           std::string_view profile) {
    std::string wanted(profile);
    if (wanted.empty()) wanted = plan::find_variable(environment, "DTRUN_PROFILE").value_or("");
    DefaultsReader reader(flags);
    const bool named = plan::find_variable(environment, "DTRUN_CONFIG").has_value();
    const std::vector<std::string> files = default_files(environment);
    for (std::size_t i = 0; i < files.size(); ++i)
        if (const auto done = reader.read_file_of(files[i], static_cast<int>(i), !named, wanted);
            !done)
            return std::unexpected(done.error());
    if (!wanted.empty() && !reader.has_profile())
        return fail(Errc::invalid_input, "there is no profile '{}'{} in {}", wanted,
                    did_you_mean(wanted, reader.profiles()),
                    files.empty() ? "no file" : join_names(files));
    const auto options = plan::find_variable(environment, "DTRUN_OPTIONS");
    if (options)
        if (const auto done = reader.read_options_of(std::string(*options)); !done)
            return std::unexpected(done.error());
    return reader.take();
}

Result<std::vector<Default>> defaults_for(Words typed, std::span<const Flag> flags,
                                          std::span<const Flag> all_flags,
                                          plan::EnvironmentView environment) {
    // What is wrong in it is told by whoever reads it for good.
    std::vector<const Flag*> given;
    std::string profile;
    OptionReader reader(typed, flags, "dtrun");
    for (;;) {
        const auto found = reader.next();
        if (!found || !*found) break;
        given.push_back(&flags[(*found)->row]);
        if (given.back()->first_name() == "--profile") profile = (*found)->value;
    }
    auto defaults = read_defaults(all_flags, environment, profile);
    if (!defaults) return defaults;
    std::erase_if(*defaults, [&](const Default& one) {
        const Flag* const flag = find_flag(flags, one.flag);
        if (flag == nullptr || !flag->refused.empty() || !one.beaten_by.empty()) return true;
        return std::ranges::any_of(given, [flag](const Flag* other) {
            return (other == flag && !flag->adds_up) || exclude_each_other(*flag, *other);
        });
    });
    return defaults;
}

}  // namespace dtrun::cli
