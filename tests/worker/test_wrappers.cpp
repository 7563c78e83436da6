#include "rendezvous/wire/start_messages.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/agent/preflight.h"
#include "worker/ranks/rank_macros.h"
#include "worker/ranks/wrappers.h"

namespace dtrun {

using namespace ranks;
using Strings = std::vector<std::string>;
namespace {

/// What rank 3, the second on its host, is started by.
Strings argv_of(const std::vector<Wrap>& wraps) {
    const auto wrappers = Wrappers::find(wraps, "/", "/usr/bin:/bin");
    REQUIRE(wrappers.has_value());
    RankCommand command{
        .path = "/bin/train", .argv = {"train", "{rank}"}, .env = {}, .directory = "/"};
    const RankSlot slot{Rank{3}, 1, 3, 4, 1};
    const contracts::Environment env{{"RANK", "3"}, {"NAME", "%q{RANK}"}};
    wrappers->apply(command, slot, "s2", env);
    return command.argv;
}

agent::Preflight check(const AgentConfig& config) {
    char home[] = "HOME=/";
    char* env[] = {home, nullptr};
    return agent::check_host(config, env);
}

}  // namespace

TEST_CASE("the program takes the place of {} in its wrapper, or stands at its end", "[wrap]") {
    CHECK(argv_of({}) == Strings{"train", "{rank}"});
    CHECK(argv_of({{{}, {"env", "{}", "x"}}}) == Strings{"env", "train", "{rank}", "x"});
    CHECK(argv_of({{{}, {"env", "-"}}}) == Strings{"env", "-", "train", "{rank}"});
    CHECK(argv_of({{{}, {"env", "a{}"}}}) == Strings{"env", "a{}", "train", "{rank}"});
}

TEST_CASE("of several wrappers the first is the outermost, and each is for its ranks", "[wrap]") {
    CHECK(argv_of({{{}, {"env", "1"}}, {{{3, 3}}, {"nice", "{}", "2"}}, {{{0, 2}}, {"sh"}}}) ==
          Strings{"env", "1", "nice", "train", "{rank}", "2"});
}

TEST_CASE("a wrapper's macros are the rank's own, and what they stand for is left alone",
          "[wrap]") {
    CHECK(argv_of({{{}, {"env", "o.%q{RANK}.{rank}.{local_rank}@{host}", "%q{NAME}", "{}"}}}) ==
          Strings{"env", "o.3.3.1@s2", "%q{RANK}", "train", "{rank}"});
    CHECK(argv_of({{{}, {"env", "%q{NONE}", "%q{", "%p", "{slot}", "{}"}}}) ==
          Strings{"env", "%q{NONE}", "%q{", "%p", "{slot}", "train", "{rank}"});
}

TEST_CASE("a wrapper is looked for as the program is", "[wrap][preflight]") {
    AgentConfig config;
    config.argv = {"true"};
    config.wraps = {{{}, {"no-such-wrapper", "{}"}}};
    CHECK(check(config).problem == HostProblem::program_missing);
    CHECK(check(config).problem_text.starts_with("--wrap: no-such-wrapper: not found on PATH"));
}

TEST_CASE("a program that only a wrapper can find is left to it, unless some rank has none",
          "[wrap][preflight]") {
    AgentConfig config;
    config.argv = {"/in/the/image/train"};
    config.wraps = {{{}, {"env"}}};
    CHECK(check(config).problem == HostProblem::none);
    config.wraps.front().ranks = {{0, 0}};
    CHECK(check(config).problem == HostProblem::program_missing);
}

}  // namespace dtrun
