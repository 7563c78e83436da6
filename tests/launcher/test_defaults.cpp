// Options that are set before anything is typed.
#include "base/log.h"
#include "launcher/cli/defaults.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <filesystem>

namespace dtrun {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

/// A file of options, and an environment that names it.
struct Setup {
    explicit Setup(const std::string& text)
        : file(folder.write("config.yaml", text)), environment{"DTRUN_CONFIG=" + file} {}
    TempDir folder;
    std::string file;
    Environment environment;

    Result<RunCommand> parse(std::string_view typed) const {
        return parse_typed(typed, environment);
    }
    std::vector<std::string> shown(std::string_view profile = "") const {
        std::vector<std::string> lines;
        const auto defaults = cli::read_defaults(cli::run_flags().flags(), environment, profile);
        if (!defaults) return {defaults.error().message};
        for (const cli::Default& one : *defaults)
            lines.push_back(fmt::format("{} {} {}", one.word,
                                        one.source.substr(one.source.rfind('/') + 1),
                                        one.beaten_by.substr(one.beaten_by.rfind('/') + 1)));
        return lines;
    }
};

const std::string kText = R"(grace: 10
tag: rank
x: [A=1, "B=2 3"]
oversubscribe: true
keep-going: false
pty: false
profiles:
  debug:
    tag: none
    timeout: 600
)";

TEST_CASE("options of a file count unless others are typed", "[cli][config]") {
    const Setup setup(kText);
    const auto plain = setup.parse("-np 2 prog");
    REQUIRE(plain);
    CHECK(plain->options.grace == std::chrono::seconds(10));
    CHECK(plain->options.oversubscribe);
    CHECK_FALSE(plain->options.keep_going);
    CHECK_FALSE(plain->options.pty);
    CHECK(plain->options.export_vars == Lines{"A=1", "B=2 3"});
    const auto typed = setup.parse("--grace 1 -x C=4 -np 2 prog");
    REQUIRE(typed);
    CHECK(typed->options.grace == std::chrono::seconds(1));
    CHECK(typed->options.export_vars == Lines{"A=1", "B=2 3", "C=4"});
}

TEST_CASE("a profile and DTRUN_OPTIONS win over the file, and it is shown which", "[cli][config]") {
    Setup setup(kText);
    CHECK(setup.shown() == Lines{"--grace=10 config.yaml:1:1 ", "--tag=rank config.yaml:2:1 ",
                                 "-x=A=1 config.yaml:3:1 ", "-x=B=2 3 config.yaml:3:1 ",
                                 "--oversubscribe config.yaml:4:1 "});
    const Lines debug = setup.shown("debug");
    REQUIRE(debug.size() == 7);
    CHECK(debug[1] == "--tag=rank config.yaml:2:1 config.yaml:9:5");
    CHECK(debug[6] == "--timeout=600 config.yaml:10:5 ");
    CHECK(setup.parse("--profile debug prog")->options.time_limit == std::chrono::seconds(600));
    CHECK(setup.shown("debu") ==
          Lines{fmt::format("there is no profile 'debu'; did you mean debug? in {}", setup.file)});
    setup.environment.push_back("DTRUN_OPTIONS=--grace 3 -x 'D=a b'");
    CHECK(setup.shown()[0] == "--grace=10 config.yaml:1:1 DTRUN_OPTIONS");
    const auto command = setup.parse("prog");
    CHECK(command->options.grace == std::chrono::seconds(3));
    CHECK(command->options.export_vars == Lines{"A=1", "B=2 3", "D=a b"});
    setup.environment.push_back("DTRUN_PROFILE=debug");
    CHECK(setup.parse("prog")->options.time_limit == std::chrono::seconds(600));
}

TEST_CASE("an option of a file gives way to a typed one that excludes it", "[cli][config]") {
    const Setup setup("hostfile: /nowhere\n");
    CHECK(setup.parse("-H s1:2 prog")->options.hostfile.empty());
    CHECK(setup.parse("prog")->options.hostfile == "/nowhere");
}

TEST_CASE("other commands take the options that they have", "[cli][config]") {
    const Setup setup("grace: 7\nmax-restarts: 3\nnp: 5\n");
    const auto torchrun = setup.parse("torchrun --nproc-per-node 2 train.py");
    REQUIRE(torchrun);
    CHECK(torchrun->options.grace == std::chrono::seconds(7));
}

TEST_CASE("what is wrong in a file is told with its line", "[cli][config]") {
    const auto [text, wanted] = GENERATE(table<std::string, std::string>({
        {"gracee: 3\n", ":1:1: dtrun run has no option 'gracee'; did you mean grace?"},
        {"\ngrace: x\n", ":2:1: --grace: 'x' is not a number of seconds from 0 to 86400"},
        {"oversubscribe: maybe\n", ":1:1: 'oversubscribe' is true or false"},
        {"- grace\n", ":1:1: expected options such as 'grace: 10'"},
        {"grace: [1\n", "end of sequence flow not found"},
        {"profiles: {a: {gracee: 1}}\n", ":1:16: dtrun run has no option 'gracee'"},
        {"help: true\n", ":1:1: dtrun run has no option 'help'"},
    }));
    const Setup setup(text);
    const auto parsed = setup.parse("prog");
    REQUIRE_FALSE(parsed);
    CHECK_THAT(parsed.error().message, Contains(wanted));
}

TEST_CASE("where options stand is the user's to say", "[cli][config]") {
    const Environment home{"HOME=/home/al"};
    CHECK(cli::default_files(home) ==
          Lines{"/etc/dtrun/config.yaml", "/home/al/.config/dtrun/config.yaml"});
    CHECK(cli::default_files(Environment{"HOME=/home/al", "XDG_CONFIG_HOME=/c"}) ==
          Lines{"/etc/dtrun/config.yaml", "/c/dtrun/config.yaml"});
    CHECK(cli::default_files(Environment{"HOME=/home/al", "DTRUN_CONFIG="}).empty());
    CHECK(cli::default_files(Environment{"DTRUN_CONFIG=/a"}) == Lines{"/a"});
    CHECK_THAT(parse_typed("prog", {"DTRUN_CONFIG=/nowhere/at/all"}).error().message,
               Contains("/nowhere/at/all"));
    CHECK_THAT(parse_typed("prog", {"DTRUN_OPTIONS=--grace 3 prog"}).error().message,
               Contains("DTRUN_OPTIONS: 'prog' is no option"));
}

TEST_CASE("a file that others could have written is not obeyed unless it is named",
          "[cli][config]") {
    const TempDir folder;
    std::filesystem::create_directory(folder.at("dtrun"));
    const std::string file = folder.write("dtrun/config.yaml", "grace: 7\n", 0644);
    const Environment found{"XDG_CONFIG_HOME=" + folder.path()};
    const auto grace = [](const Environment& environment) {
        const auto parsed = parse_typed("-np 2 prog", environment);
        REQUIRE(parsed.has_value());
        return parsed->options.grace;
    };
    std::vector<std::string> told;
    log::set_sink(
        [](void* lines, std::string_view line) {
            static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
        },
        &told);
    CHECK(grace(found) == std::chrono::seconds(7));
    CHECK(told.empty());
    REQUIRE(::chmod(file.c_str(), 0646) == 0);
    CHECK(grace(found) != std::chrono::seconds(7));
    CHECK(grace({"DTRUN_CONFIG=" + file}) == std::chrono::seconds(7));
    REQUIRE(told.size() == 1);
    CHECK(told[0] == "dtrun: " + file + ": others can write to it; chmod go-w; it is not read\n");
    if (::geteuid() == 0) {  // only root can give it away; its own group is that of its name
        REQUIRE(::chmod(file.c_str(), 0664) == 0);
        CHECK(grace(found) == std::chrono::seconds(7));
        REQUIRE(::chown(file.c_str(), 0, 12'345) == 0);
        CHECK(grace(found) != std::chrono::seconds(7));
        REQUIRE(::chmod(file.c_str(), 0644) == 0);
        CHECK(grace(found) == std::chrono::seconds(7));
        REQUIRE(::chown(file.c_str(), 12'345, 0) == 0);
        CHECK(grace(found) != std::chrono::seconds(7));
        CHECK_THAT(told.back(), Contains("belongs to user 12345; it is not read"));
    }
    log::set_sink(nullptr, nullptr);
}

}  // namespace
}  // namespace dtrun
