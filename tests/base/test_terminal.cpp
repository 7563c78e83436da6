#include "base/terminal.h"

#include "tests/support/catch.h"

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dtrun {
namespace {

using Variables = std::map<std::string, std::string>;

/// Sets these variables, and none of the others that count here, as long as it lives.
class Environment {
public:
    explicit Environment(const Variables& variables) {
        for (const char* const name :
             {"NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "TERM"}) {
            if (const char* const value = std::getenv(name)) before_.emplace(name, value);
            ::unsetenv(name);
        }
        for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
        set_ = variables;
    }
    ~Environment() {
        for (const auto& [name, value] : set_) ::unsetenv(name.c_str());
        for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

private:
    Variables before_, set_;
};

}  // namespace

TEST_CASE("colours are asked for and refused by the variables of the field", "[terminal]") {
    const std::vector<std::pair<Variables, ColorWish>> cases{
        {{}, ColorWish::of_terminal},
        {{{"NO_COLOR", "1"}}, ColorWish::never},
        {{{"NO_COLOR", ""}}, ColorWish::of_terminal},
        {{{"NO_COLOR", "1"}, {"FORCE_COLOR", "1"}}, ColorWish::never},
        {{{"FORCE_COLOR", "3"}}, ColorWish::always},
        {{{"FORCE_COLOR", ""}}, ColorWish::of_terminal},
        {{{"FORCE_COLOR", "0"}, {"CLICOLOR_FORCE", "1"}}, ColorWish::never},
        {{{"CLICOLOR_FORCE", "1"}, {"CLICOLOR", "0"}}, ColorWish::always},
        {{{"CLICOLOR_FORCE", "0"}}, ColorWish::of_terminal},
        {{{"CLICOLOR", "0"}}, ColorWish::never},
        {{{"CLICOLOR", "1"}}, ColorWish::of_terminal},
    };
    for (const auto& [variables, wish] : cases) {
        const Environment environment(variables);
        CAPTURE(variables);
        CHECK(color_wish() == wish);
    }
}

TEST_CASE("a terminal whose kind is not known, or dumb, takes no sequences", "[terminal]") {
    const auto is_dumb = [](const Variables& variables) {
        const Environment environment(variables);
        return is_terminal_dumb();
    };
    CHECK(is_dumb({}));
    CHECK(is_dumb({{"TERM", ""}}));
    CHECK(is_dumb({{"TERM", "dumb"}}));
    CHECK_FALSE(is_dumb({{"TERM", "xterm-256color"}}));
}

}  // namespace dtrun
