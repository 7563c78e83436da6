// Processes that are kept ready for ranks: when there are some, and which commands they may run. What they
// are like is seen in tests/launcher/checks/check_standby.py.
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/ranks/python_command.h"
#include "worker/ranks/standby_plan.h"

#include <filesystem>
#include <string>
#include <vector>

namespace dtrun {

using namespace ranks;
using Catch::Contains;
using std::chrono::seconds;
namespace {

const Deadline kStart{std::chrono::hours(1)};

/// A plan whose ranks have run for long enough.
StandbyPlan quiet_plan(std::uint32_t wanted) {
    StandbyPlan plan(wanted);
    plan.ranks_run(kStart - StandbyPlan::kQuiet);
    return plan;
}

std::string why_not(const std::string& path, std::vector<std::string> options) {
    RankCommand command;
    command.path = path;
    command.argv = std::move(options);
    command.argv.insert(command.argv.begin(), path);
    command.env = {"PATH=/usr/bin:/bin"};
    command.directory = "/";
    return why_not_standby(command);
}

}  // namespace

TEST_CASE("processes are kept ready once no rank has been started for a while", "[standby]") {
    StandbyPlan plan(1);
    CHECK_FALSE(plan.wants_one(kStart));
    plan.ranks_run(kStart);
    CHECK_FALSE(plan.wants_one(kStart + seconds(4)));
    CHECK(plan.next_deadline() == kStart + StandbyPlan::kQuiet);
    plan.ranks_run(kStart + seconds(4));
    CHECK_FALSE(plan.wants_one(kStart + seconds(8)));
    CHECK(plan.wants_one(kStart + seconds(9)));
    plan.ranks_change();
    CHECK_FALSE(plan.wants_one(kStart + seconds(100)));
    CHECK(plan.next_deadline() == Deadline::max());
}

TEST_CASE("processes that are kept ready are started one after the other, and replaced when used",
          "[standby]") {
    StandbyPlan plan = quiet_plan(2);
    plan.started(kStart);
    CHECK_FALSE(plan.wants_one(kStart));
    plan.parked();
    CHECK(plan.wants_one(kStart));
    plan.started(kStart);
    plan.parked();
    CHECK_FALSE(plan.wants_one(kStart));
    CHECK(plan.next_deadline() == Deadline::max());
    plan.used();
    CHECK(plan.wants_one(kStart));
    CHECK_FALSE(plan.has_given_up());
}

TEST_CASE("a process that ends before it is used is replaced twice, and then no more",
          "[standby]") {
    StandbyPlan plan = quiet_plan(1);
    for (const bool was_parked : {false, true}) {
        plan.started(kStart);
        if (was_parked) plan.parked();
        plan.died(was_parked, "ended with exit code 7");
        CHECK(plan.wants_one(kStart));
    }
    plan.started(kStart);
    plan.died(false, "was ended by signal 9 (SIGKILL)");
    CHECK_FALSE(plan.wants_one(kStart));
    CHECK(
        plan.why() ==
        "3 of them have ended before they were used; the last one was ended by signal 9 (SIGKILL)");
    plan.give_up("another reason");
    CHECK_THAT(plan.why(), Contains("3 of them"));
}

TEST_CASE("a process that is never ready is late", "[standby]") {
    StandbyPlan plan = quiet_plan(1);
    plan.started(kStart);
    CHECK(plan.next_deadline() == kStart + StandbyPlan::kStartLimit);
    CHECK_FALSE(plan.is_late(kStart + seconds(119)));
    CHECK(plan.is_late(kStart + seconds(120)));
    plan.parked();
    CHECK_FALSE(plan.is_late(kStart + seconds(1'000)));
}

TEST_CASE("only what surely imports sitecustomize can be kept ready", "[standby]") {
    const std::string python = "/usr/bin/python3";
    for (const std::vector<std::string>& options :
         std::vector<std::vector<std::string>>{{"x.py", "-I"},
                                               {"-u", "-X", "importtime", "-Wignore", "x.py"},
                                               {"-W", "-E", "x.py"},
                                               {"-Xdev", "-c", "pass", "-S"},
                                               {"-um", "module", "-I"},
                                               {"--", "-I"},
                                               {}})
        CHECK(why_not(python, options).empty());
    CHECK_THAT(why_not(python, {"-I", "x.py"}), Contains("with -I Python does not import"));
    CHECK_THAT(why_not(python, {"-uES", "x.py"}), Contains("with -E "));
    CHECK_THAT(why_not(python, {"-X", "dev", "-S", "x.py"}), Contains("with -S "));
    CHECK_THAT(why_not(python, {"--version"}), Contains("with --version "));
    CHECK(why_not("/bin/sh", {"-c", "python3 x.py"}) == "/bin/sh is no Python program");
    CHECK_FALSE(why_not("/no/such/program", {}).empty());
}

TEST_CASE("a script is kept ready if its first line names Python without isolating it",
          "[standby]") {
    const TempDir dir;
    const auto script = [&dir](const std::string& line) {
        return why_not(dir.write("script", line + "\nimport os\n", 0755), {"-I"});
    };
    CHECK(script("#!/usr/bin/python3").empty());
    CHECK(script("#! /usr/bin/python3 -u").empty());
    CHECK(script("#!/usr/bin/env python3").empty());
    CHECK_THAT(script("#!/usr/bin/python3 -sE"), Contains("with -E "));
    CHECK_THAT(script("#!/bin/sh"), Contains("is no Python program"));
    CHECK_THAT(script("#!/usr/bin/env -S python3 -I"), Contains("is no Python program"));
    CHECK_THAT(script("#!/usr/bin/env no-such-python"), Contains("is no Python program"));
}

TEST_CASE("a link to Python is Python, and a script of that name is not", "[standby]") {
    const TempDir dir;
    const std::string link = dir.path() + "/interpreter";
    std::filesystem::create_symlink("/usr/bin/python3", link);
    CHECK(why_not(link, {"x.py"}).empty());
    CHECK_THAT(why_not(dir.write("python3", "#!/bin/sh\nexec /usr/bin/python3 \"$@\"\n", 0755), {}),
               Contains("name the interpreter itself"));
}

}  // namespace dtrun
