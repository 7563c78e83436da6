// Completion of command lines, and manual pages.
#include "base/strings.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/man.h"
#include "launcher/cli/run.h"
#include "launcher/commands/hosts_command.h"
#include "launcher/commands/see_commands.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <set>

namespace dtrun::cli {
namespace {

using Catch::Contains;
using Offer = Completion::Kind;

int nothing_runs(Words, plan::EnvironmentView) {
    return 0;
}
template <auto Table>
std::span<const Flag> flags_of() {
    return Table().flags();
}

constexpr Command kCommands[] = {
    {.name = "run",
     .summary = "",
     .run = nothing_runs,
     .help = all_flags_help,
     .flags = flags_of<run_flags>},
    {.name = "top",
     .summary = "what ranks use",
     .run = nothing_runs,
     .help = commands::top_help,
     .flags = flags_of<commands::top_flags>},
    {.name = "help", .summary = "", .run = nothing_runs, .help = exit_codes_help},
    {.name = "words", .summary = "a topic", .run = nullptr, .help = exit_codes_help},
};

/// \param typed  behind `dtrun`; the last word is what is typed of it
Completion completed(const std::vector<std::string>& typed) {
    return complete(kCommands, typed);
}

std::set<std::string> words_of(const Completion& completion) {
    std::set<std::string> words;
    for (const auto& [word, description] : completion.words) words.insert(word);
    return words;
}

TEST_CASE("the first word is a command or a program", "[cli][completion]") {
    CHECK(words_of(completed({""})) == std::set<std::string>{"run", "top", "help"});
    CHECK(completed({""}).kind == Offer::words);
    CHECK(words_of(completed({"to"})) == std::set<std::string>{"top"});
    CHECK(completed({"to"}).kind == Offer::words);  // and not touch
    CHECK(completed({"pyth"}).kind == Offer::programs);
    CHECK(words_of(completed({"pyth"})).empty());
    CHECK(words_of(completed({"w"})).empty());  // a topic is no command
    CHECK(words_of(completed({"help", "w"})) == std::set<std::string>{"words"});
}

TEST_CASE("a dash begins the options of the command, each with what it does", "[cli][completion]") {
    const Completion found = completed({"--bind"});
    CHECK(words_of(found) == std::set<std::string>{"--bind-to", "--binding-args"});
    CHECK_THAT(found.words.front().second, Contains("what each rank is bound to"));
    CHECK(words_of(completed({"top", "--s"})) == std::set<std::string>{"--sort"});
    CHECK(words_of(completed({"run", "-np", "4", "--max-r"})) ==
          std::set<std::string>{"--max-restarts"});
    // Every option that the help of `run` shows is offered.
    const auto all = words_of(completed({"--"}));
    for (const Flag& flag : run_flags().flags())
        for (const std::string_view name : split(flag.names, ' '))
            if (name.starts_with("--") && flag.refused.empty() && flag.group != FlagGroup::foreign)
                CHECK(all.contains(std::string(name)));
}

TEST_CASE("a value is one of its words, a file, or nobody's guess", "[cli][completion]") {
    CHECK(words_of(completed({"--on-hang", "k"})) == std::set<std::string>{"kill"});
    CHECK(words_of(completed({"top", "--sort", ""})) ==
          std::set<std::string>{"trouble", "rank", "cpu", "memory", "step"});
    const Completion joined = completed({"--on-hang=re"});
    CHECK(words_of(joined) == std::set<std::string>{"report"});
    CHECK(joined.begin == "--on-hang=");
    CHECK(completion_lines(joined, false) == "words\n--on-hang=report\t\n");
    CHECK(completion_lines(joined, true) == "words\nreport\t\n");
    CHECK(completed({"--hostfile", ""}).kind == Offer::files);
    CHECK(completed({"--output-dir", "lo"}).kind == Offer::files);
    CHECK(completed({"-np", ""}).kind == Offer::nothing);
}

TEST_CASE("values that a flag's name for them does not list are offered, and are right",
          "[cli][completion]") {
    CHECK(words_of(completed({"--bind-to", "s"})) == std::set<std::string>{"share", "socket"});
    CHECK(words_of(completed({"--map-by", "n"})) == std::set<std::string>{"node", "numa"});
    CHECK(words_of(completed({"--tag=rank"})) == std::set<std::string>{"rank", "rank-host"});
    CHECK(words_of(completed({"--contract", "slurm,ja"})) == std::set<std::string>{"slurm,jax"});
    CHECK(words_of(completed({"--contract", "no"})) == std::set<std::string>{"none"});
    const auto check = [](const auto& table) {
        for (std::size_t row = 0; row < table.flags().size(); ++row)
            for (const std::string_view word : split(table.flags()[row].words, '|')) {
                CAPTURE(table.flags()[row].names, word);
                typename std::remove_cvref_t<decltype(table)>::Parsed parsed;
                if (!word.empty()) CHECK(table.setter(row)(parsed, word));
            }
    };
    check(run_flags());
    check(commands::hosts_flags());
}

TEST_CASE("what follows the program is the program's", "[cli][completion]") {
    CHECK(completed({"-np", "2", "python3", "--"}).kind == Offer::rest);
    CHECK(completed({"A=1", "python3", ""}).kind == Offer::rest);
    CHECK(completed({"A=1", "pyt"}).kind == Offer::programs);
    CHECK(completed({"--tag", "rank", "pyt"}).kind == Offer::programs);
}

TEST_CASE("commands about jobs take a job", "[cli][completion]") {
    CHECK(completed({"top", "3f"}).kind == Offer::jobs);
    CHECK(completed({"top", "--interval", "3", ""}).kind == Offer::jobs);
    CHECK(completed({"top", "3f", ""}).kind == Offer::files);
}

TEST_CASE("there is completion for three shells", "[cli][completion]") {
    for (const char* const shell : {"bash", "zsh", "fish"}) CHECK(completion_script(shell));
    CHECK_THAT(completion_script("tcsh").error().message,
               Contains("bash, zsh and fish, not for 'tcsh'"));
}

TEST_CASE("a manual page has sections, and the options of the table", "[cli][man]") {
    CHECK(man_file(kCommands, kCommands[0]) == "dtrun.1");
    CHECK(man_file(kCommands, kCommands[1]) == "dtrun-top.1");
    CHECK(has_man_page(kCommands, kCommands[1]));
    CHECK_FALSE(has_man_page(kCommands, kCommands[2]));
    CHECK_FALSE(has_man_page(kCommands, kCommands[3]));
    const std::string page = man_page(kCommands, kCommands[1]);
    CHECK_THAT(page, Contains(".SH NAME\ndtrun\\-top \\- what ranks use\n"));
    CHECK_THAT(page, Contains(".SH SYNOPSIS\n.nf\ndtrun top [JOB] [options]\n.fi\n"));
    CHECK_THAT(page,
               Contains(".TP\n.B \\-\\-interval SECONDS\ntime between two looks (default: 2)\n"));
    CHECK_THAT(page, Contains(".SH EXIT STATUS\n0; 200 no such job.\n"));
    CHECK_THAT(page, Contains(".SH SEE ALSO\n.BR dtrun (1)\n"));
    // What stands under "Options:" in the help is not there twice.
    CHECK(page.find("between two looks") == page.rfind("between two looks"));
}

}  // namespace
}  // namespace dtrun::cli
