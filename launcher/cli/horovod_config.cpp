#include "launcher/cli/horovod_config.h"

#include "base/strings.h"
#include "base/suggest.h"

#include <yaml-cpp/yaml.h>
#include <algorithm>

namespace dtrun::cli {

namespace {

constexpr std::string_view kController = "controller";

template <class... A>
std::unexpected<Error> fail_at(const YAML::Mark& mark, std::string_view file,
                               fmt::format_string<A...> text, A&&... args) {
    return fail(Errc::invalid_input, "{}:{}:{}: {}", file, mark.line + 1, mark.column + 1,
                fmt::format(text, std::forward<A>(args)...));
}

/// "params" for "params.cycle_time_ms".
std::string section_of(std::string_view key) {
    return std::string(key.substr(0, key.find('.')));
}

/// Keys allowed in a section; at the top ("") the sections.
std::vector<std::string> known_keys(std::string_view section) {
    std::vector<std::string> keys;
    if (section.empty()) keys.emplace_back(kController);
    for (const HorovodSetting& setting : horovod_settings()) {
        for (const std::string_view key : {setting.key, setting.key_no}) {
            if (key.empty()) continue;
            if (section.empty())
                keys.push_back(section_of(key));
            else if (section_of(key) == section)
                keys.emplace_back(key.substr(section.size() + 1));
        }
    }
    return keys;
}

class ConfigReader {
public:
    explicit ConfigReader(std::string_view file) : file_(file) {}

    Result<HorovodValues> read(const YAML::Node& root) {
        if (root.IsNull()) return HorovodValues{};
        if (!root.IsMap())
            return fail_at(root.Mark(), file_, "expected sections such as 'params:'");
        for (const auto& entry : root)
            if (const auto done = section(entry.first, entry.second); !done)
                return std::unexpected(done.error());
        return std::move(values_);
    }

private:
    Result<void> section(const YAML::Node& key, const YAML::Node& content) {
        const std::string name = key.IsScalar() ? key.Scalar() : "";
        if (name == kController) return controller(content);
        const std::vector<std::string> sections = known_keys("");
        if (std::ranges::find(sections, name) == sections.end())
            return fail_at(key.Mark(), file_, "unknown section '{}'{}", name,
                           did_you_mean(name, sections));
        if (content.IsNull()) return {};
        if (!content.IsMap())
            return fail_at(content.Mark(), file_, "'{}' needs settings, such as '{}: ...'", name,
                           known_keys(name).front());
        for (const auto& entry : content)
            if (const auto done = setting(name, entry.first, entry.second); !done) return done;
        return {};
    }

    Result<void> controller(const YAML::Node& value) {
        const std::string name = value.IsScalar() ? value.Scalar() : "";
        if (value.IsNull()) return {};
        if (name != "gloo" && name != "mpi")
            return fail_at(value.Mark(), file_, "'{}' is not a controller; use gloo or mpi", name);
        values_.insert_or_assign(std::string(kHorovodController), name);
        return {};
    }

    Result<void> setting(const std::string& section, const YAML::Node& key,
                         const YAML::Node& value) {
        const std::string name = key.IsScalar() ? key.Scalar() : "";
        const std::string full = section + "." + name;
        const auto found =
            std::ranges::find_if(horovod_settings(), [&full](const HorovodSetting& candidate) {
                return candidate.key == full || candidate.key_no == full;
            });
        if (found == horovod_settings().end())
            return fail_at(key.Mark(), file_, "unknown key '{}' in '{}'{}", name, section,
                           did_you_mean(name, known_keys(section)));
        if (value.IsNull()) return {};
        if (!value.IsScalar()) return fail_at(value.Mark(), file_, "'{}' needs one value", name);
        auto text = found->form == HorovodSetting::Form::yes_no
                        ? yes_no(value, found->key_no == full)
                        : horovod_value(*found, value.Scalar());
        if (!text) return fail_at(value.Mark(), file_, "{}: {}", name, text.error().message);
        values_.insert_or_assign(std::string(found->variable), std::move(*text));
        return {};
    }

    static Result<std::string> yes_no(const YAML::Node& value, bool opposite) {
        bool on = false;
        if (!YAML::convert<bool>::decode(value, on))
            return fail(Errc::invalid_input, "'{}' is neither true nor false", value.Scalar());
        return on != opposite ? "1" : "0";
    }

    std::string_view file_;
    HorovodValues values_;
};

}  // namespace

Result<HorovodValues> parse_horovod_config(std::string_view text, std::string_view name) {
    try {
        return ConfigReader(name).read(YAML::Load(std::string(text)));
    } catch (const YAML::Exception& error) {
        return fail_at(error.mark, name, "{}", error.msg);
    }
}

}  // namespace dtrun::cli
