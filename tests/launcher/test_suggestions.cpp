// Every word that is suggested is accepted: each flag of each command, mistyped in each of the usual ways.
#include "base/strings.h"
#include "lab/plan/flags.h"
#include "launcher/cli/misspelt.h"
#include "launcher/commands/config_command.h"
#include "launcher/commands/demo.h"
#include "launcher/commands/doctor_command.h"
#include "launcher/commands/install_links.h"
#include "launcher/commands/see_commands.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"

#include <set>

namespace dtrun::cli {
namespace {

/// What a hurried person types for a word: a letter dropped, doubled, replaced, or two that change places.
std::set<std::string> typos_of(std::string_view word, std::size_t from) {
    std::set<std::string> typos;
    for (std::size_t at = from; at < word.size(); ++at) {
        std::string typo(word);
        typos.insert(std::string(typo).erase(at, 1));
        typos.insert(std::string(typo).insert(at, 1, word[at]));
        typo[at] = word[at] == 'q' ? 'x' : 'q';
        typos.insert(typo);
        typo = word;
        if (at + 1 < word.size()) std::swap(typo[at], typo[at + 1]);
        typos.insert(typo);
    }
    typos.erase(std::string(word));
    return typos;
}

/// The word behind "did you mean", if there is one.
std::string suggested(std::string_view message) {
    constexpr std::string_view kAsks = "did you mean ";
    const std::size_t at = message.find(kAsks);
    if (at == std::string_view::npos) return {};
    message.remove_prefix(at + kAsks.size());
    return std::string(message.substr(0, message.find('?')));
}

struct Tally {
    int typos = 0, suggested = 0, right = 0;
};

/// What is said of `typo`, typed as an option with a value.
std::string answer_to(std::span<const Flag> flags, const std::string& typo) {
    const std::vector<std::string> words{typo, "1", "1"};
    OptionReader reader(words, flags, "dtrun x");
    const auto found = reader.next();
    return found ? "" : found.error().message;
}

/// Of all mistakes in all names every fifth: with the sanitizers all of them take more than a minute.
constexpr std::size_t kStride = 5;

Tally check_flags(std::span<const Flag> flags) {
    Tally count;
    std::size_t at = 0;
    for (const Flag& flag : flags)
        for (const std::string_view name : split(flag.names, ' ')) {
            if (!name.starts_with("--")) continue;
            for (const std::string& typo : typos_of(name, 2)) {
                if (at++ % kStride != 0) continue;
                const std::string message = answer_to(flags, typo);
                if (message.empty() || !message.starts_with("unknown option")) continue;
                const std::string word = suggested(message);
                const bool is_flag = flag.refused.empty();
                count.typos += is_flag;
                if (word.empty()) continue;
                count.suggested += is_flag;
                count.right += is_flag && word == name;
                CAPTURE(typo, message);
                const Flag* const meant = find_flag(flags, word);
                REQUIRE(meant != nullptr);
                CHECK(meant->refused.empty());
            }
        }
    return count;
}

int does_nothing(Words, plan::EnvironmentView) {
    return 0;
}

std::string no_help() {
    return "";
}

}  // namespace

TEST_CASE("a flag that is suggested is one that is accepted, whatever was mistyped",
          "[cli][suggestions]") {
    const std::span<const Flag> all[] = {
        run_flags().flags(),
        commands::join_options(),
        frontends::torchrun_flags().flags(),
        frontends::deepspeed_flags().flags(),
        frontends::mpirun_flags().flags(),
        commands::hosts_flags().flags(),
        commands::serve_flags().flags(),
        commands::store_flags().flags(),
        commands::status_flags().flags(),
        commands::doctor_flags().flags(),
        commands::demo_flags().flags(),
        commands::jobs_flags().flags(),
        commands::top_flags().flags(),
        commands::end_flags().flags(),
        commands::stacks_flags().flags(),
        commands::attach_flags().flags(),
        commands::config_flags().flags(),
        commands::links_flags().flags(),
        lab::bench_flags().flags(),
    };
    Tally sum;
    for (const std::span<const Flag> flags : all) {
        const Tally count = check_flags(flags);
        sum.typos += count.typos;
        sum.suggested += count.suggested;
        sum.right += count.right;
    }
    // Of those that are accepted; others may have no likeness among these.
    CHECK(sum.typos > 1'000);
    CHECK(sum.suggested > sum.typos * 98 / 100);
    CHECK(sum.right > sum.typos * 95 / 100);
}

TEST_CASE("a command that is suggested is one, whatever was mistyped", "[cli][suggestions]") {
    constexpr std::string_view kNames[] = {
        "run",    "demo",   "bench",  "hosts",    "doctor",    "info",   "serve",
        "join",   "status", "store",  "jobs",     "top",       "end",    "stacks",
        "attach", "help",   "config", "torchrun", "deepspeed", "mpirun", "contracts",
    };
    std::vector<Command> commands;
    for (const std::string_view name : kNames)
        commands.push_back({.name = name, .summary = "", .run = does_nothing, .help = no_help});
    commands.push_back({.name = "words", .summary = "", .run = nullptr, .help = no_help});
    const std::vector<std::string> no_path{"PATH=/nonexistent"};
    Tally count;
    for (const Command& command : commands)
        for (const std::string& typo : typos_of(command.name, 0)) {
            const std::vector<std::string> words{typo};
            if (find_command(commands, words) != nullptr) continue;
            ++count.typos;
            const auto said = misspelt_command(commands, words, no_path);
            if (!said) continue;
            CAPTURE(typo, said->message);
            const std::string word = suggested(said->message);
            if (word.empty()) continue;  // a word of other launchers
            ++count.suggested;
            REQUIRE(word.starts_with("dtrun "));
            const std::vector<std::string> meant{word.substr(6)};
            REQUIRE(find_command(commands, meant) != nullptr);
            count.right += meant.front() == command.name;
        }
    CHECK(count.typos > 300);
    CHECK(count.right > count.typos / 2);
}

TEST_CASE("two letters that changed places are one mistake", "[cli][suggestions]") {
    for (const auto& [typed, meant] : {std::pair("--hostflie", "--hostfile"),
                                       {"--oupput-dir", "--output-dir"},
                                       {"--timestmaps", "--timestamps"},
                                       {"--min-pn", "--min-np"},
                                       {"--no-evn", "--no-env"}}) {
        CAPTURE(typed);
        CHECK(suggested(answer_to(run_flags().flags(), typed)) == meant);
    }
}

TEST_CASE("words by which other launchers have it are answered with dtrun's",
          "[cli][suggestions]") {
    const std::vector<std::string> no_path{"PATH=/nonexistent"};
    const Command commands[] = {{"run", "", does_nothing, no_help}};
    const auto said = [&](const char* word) {
        const std::vector<std::string> words{word};
        const auto error = misspelt_command(commands, words, no_path);
        return error ? error->message : std::string();
    };
    for (const auto& [word, hint] : {std::pair("cancel", "; dtrun end is that here"),
                                     {"list", "; dtrun jobs is that here"},
                                     {"init", "; dtrun demo is that here"},
                                     {"diagnose", "; dtrun doctor is that here"},
                                     {"submit", "; dtrun run is that here"}})
        CHECK(said(word) ==
              std::string(word) + ": neither a command of dtrun nor a program on PATH" + hint);
    CHECK_THAT(said("kill"), Catch::StartsWith("kill: a job is ended by dtrun end JOB"));
    CHECK(said("train.py").empty());
    CHECK(said("./stop").empty());
    const std::vector<std::string> path{"PATH=/bin:/usr/bin"};
    const std::vector<std::string> ls{"ls"}, nothing{"train"};
    CHECK(note_on_program(ls, path) ==
          "ls is run as a program, which is on PATH; dtrun jobs is what it is elsewhere");
    CHECK_FALSE(note_on_program(nothing, path));
}

TEST_CASE(
    "a command of another launcher is suggested with the words that it takes, and nothing secret",
    "[cli][suggestions]") {
    const Command commands[] = {
        {"run", "", does_nothing, no_help},
        {"torchrun", "", does_nothing, no_help, [] { return frontends::torchrun_flags().flags(); }},
        {"deepspeed", "", does_nothing, no_help,
         [] { return frontends::deepspeed_flags().flags(); }}};
    const auto said = [&commands](std::string_view typed) {
        const std::vector<std::string> words = shell_words(typed).value();
        const auto error = front_end_meant(commands, words);
        if (!error) return std::string();
        const std::size_t begin = error->message.find("write ") + 6;
        return error->message.substr(begin, error->message.rfind("; ") - begin);
    };
    CHECK(said("--nnodes 2 --nproc-per-node=4 train.py --lr 'a b'") ==
          "dtrun torchrun --nnodes 2 --nproc-per-node=4 train.py --lr 'a b'");
    CHECK(said("-np 4 -x HF_TOKEN=abc --encrypt --nnodes 2 -- train.py") ==
          "dtrun torchrun -x HF_TOKEN=... --encrypt --nnodes 2 -- train.py (it has no -np)");
    CHECK(said("-x=A=1 -genv B 2 --num-gpus 2 C=3 train.py D=4") ==
          "dtrun deepspeed -x A=... --num-gpus 2 -x C=... train.py D=4 (it has no -genv)");
    CHECK(said("-nnodes 2 train.py") == "dtrun torchrun -nnodes 2 train.py");
    CHECK(said("--nnodes 2 --num-gpus 2 train.py").empty());  // of two launchers
    CHECK(said("-np 2 train.py --nnodes 2").empty());
    // Whatever is suggested is accepted.
    for (const Command& command : commands)
        for (const Flag& flag : run_flags().flags()) {
            if (command.flags == nullptr || !flag.refused.empty()) continue;
            const std::string value = flag.value() == Flag::Value::required ? " 1" : "";
            const std::string front = command.name == "torchrun" ? "--nnodes" : "--num-gpus";
            const std::string typed =
                fmt::format("{}{} {} 2 train.py", flag.first_name(), value, front);
            const std::string line = said(typed);
            CAPTURE(typed, line);
            if (line.empty()) continue;
            const auto words = shell_words(line.substr(0, line.find(" (it has no"))).value();
            OptionReader reader(Words(words).subspan(2), command.flags(), "dtrun");
            auto next = reader.next();
            while (next && *next) next = reader.next();
            CHECK(next.has_value());
        }
}

TEST_CASE("the demonstration suggests a command that has the same ranks", "[cli][suggestions]") {
    const auto suggested_by = [](const Environment& environment, std::vector<std::string> words) {
        const auto command = commands::parse_demo(words, environment);
        REQUIRE(command.has_value());
        const std::string& text = command->farewell;
        const std::size_t begin = text.find("  dtrun") + 2;
        return text.substr(begin, text.find('\n', begin) - begin);
    };
    const Environment nothing{"PATH=/usr/bin:/bin", "DTRUN_CONFIG="};
    CHECK(suggested_by(nothing, {}) == "dtrun -np 4 python3 train.py");
    CHECK(suggested_by(nothing, {"-np", "2"}) == "dtrun -np 2 python3 train.py");
    Environment defaults = nothing;
    defaults.emplace_back("DTRUN_OPTIONS=-np 2");
    CHECK(suggested_by(defaults, {}) == "dtrun python3 train.py");
    Environment slurm = nothing;
    slurm.insert(slurm.end(), {"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=s1", "SLURM_TASKS_PER_NODE=2",
                               "SLURM_NNODES=1"});
    CHECK(suggested_by(slurm, {}) == "dtrun python3 train.py");
}

}  // namespace dtrun::cli
