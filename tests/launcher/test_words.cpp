#include "base/fd.h"
#include "launcher/cli/foreign_rows.h"
#include "launcher/plan/binding.h"
#include "launcher/plan/job_plan.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fmt/format.h>

using namespace dtrun;

namespace {

/// "aa:0,1 bb:2", the ranks of each host.
std::string places_of(const plan::JobSpec& spec) {
    std::string text;
    for (const plan::JobHost& host : spec.hosts)
        text += fmt::format("{}{}:{}", text.empty() ? "" : " ", host.host.name,
                            fmt::join(host.ranks, ","));
    return text;
}

std::string words_of(const std::vector<std::string>& argv) {
    return fmt::format("{}", fmt::join(argv, " "));
}

/// What a command line amounts to: where its ranks are, which programs with which variables; or the
/// error.
std::string outcome_of(const std::string& typed, const std::string& directory) {
    const Environment caller{"PATH=/usr/bin", "A=here"};
    auto command = parse_typed(typed, caller);
    if (!command) return command.error().message;
    const auto spec = plan::make_job_spec(std::move(command->options), caller, directory);
    if (!spec) return spec.error().message;
    std::string text = places_of(*spec);
    const BindingRequest binding = plan::binding_request(spec->options);
    if (binding.needs_topology()) text += " | " + words_of(plan::binding_words(binding));
    if (!spec->environment.added.empty()) text += " | " + show(spec->environment.added);
    if (spec->programs.empty()) return text + " | " + words_of(spec->options.program);
    for (const plan::PlannedProgram& program : spec->programs)
        text +=
            fmt::format(" | {}*{}{}", program.ranks,
                        program.env.empty() ? "" : show(program.env) + " ", words_of(program.argv));
    return text;
}

}  // namespace

TEST_CASE("command lines of other launchers' documentation do what they say, or say what to write",
          "[launcher][cli][words]") {
    TempDir folder;
    folder.write("hosts", "aa slots=2\nbb slots=2\n");
    folder.write("ranks", "rank 0=bb slot=0\nrank 1=aa slot=1:0-2\nrank 2=bb\n");
    const auto replaced = [](std::string text, const std::string& what, const std::string& by) {
        for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
            text.replace(at, what.size(), by);
        return text;
    };
    // A command line, and in the next line behind blanks what it amounts to.
    const auto golden = read_file(DTRUN_WORDS_TXT);
    REQUIRE(golden.has_value());
    const auto lines = split(trim(*golden), '\n');
    REQUIRE(lines.size() % 2 == 0);
    CHECK(lines.size() >= 2 * 60);
    for (std::size_t i = 0; i < lines.size(); i += 2) {
        CAPTURE(lines[i]);
        const std::string typed = replaced(std::string(lines[i]), "DIR/", folder.path() + "/");
        CHECK(replaced(outcome_of(typed, "/work"), folder.path(), "DIR") == trim(lines[i + 1]));
    }
}
