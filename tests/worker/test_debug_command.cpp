// By what a rank waits for a debugger.

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/ranks/debug_command.h"
#include "worker/ranks/python_command.h"

namespace dtrun {

using namespace ranks;
using Strings = std::vector<std::string>;
namespace {

const std::string kPython = "/usr/bin/python3";

RankCommand command_of(Strings argv) {
    RankCommand command{.path = argv.front(),
                        .argv = std::move(argv),
                        .env = {"PATH=/usr/bin:/bin"},
                        .directory = "/"};
    return command;
}

/// The words with debugpy in them.
Strings debugged(Strings argv) {
    RankCommand command = command_of(std::move(argv));
    const auto done =
        wait_for_debugger(command, Debugger::debugpy, "127.0.0.1:5678", "/usr/bin:/bin");
    INFO((done ? "" : done.error().message));
    REQUIRE(done.has_value());
    std::vector<std::string> words;
    for (const std::string& word : command.argv)
        if (word != "127.0.0.1:5678" && word != "--wait-for-client" && word != "--listen")
            words.push_back(word);
    return words;
}

}  // namespace

TEST_CASE("debugpy stands behind Python's own options and before what it runs", "[debug]") {
    CHECK(debugged({kPython, "train.py", "-m", "x"}) ==
          Strings{kPython, "-m", "debugpy", "train.py", "-m", "x"});
    CHECK(debugged({kPython, "-u", "-X", "dev", "-Wignore", "t.py"}) ==
          Strings{kPython, "-u", "-X", "dev", "-Wignore", "-m", "debugpy", "t.py"});
    CHECK(debugged({kPython, "-m", "pkg.train", "-x"}) ==
          Strings{kPython, "-m", "debugpy", "-m", "pkg.train", "-x"});
    CHECK(debugged({kPython, "-um", "pkg"}) ==
          Strings{kPython, "-u", "-m", "debugpy", "-m", "pkg"});
    CHECK(debugged({kPython, "--", "t.py"}) == Strings{kPython, "-m", "debugpy", "t.py"});
    CHECK(debugged({kPython, "-c", "print()"}) ==
          Strings{kPython, "-m", "debugpy", "-c", "print()"});
}

TEST_CASE("a script that names Python in its first line is debugged as Python's", "[debug]") {
    const TempDir dir;
    const std::string script = dir.write("train", "#!/usr/bin/env python3\nprint()\n", 0755);
    CHECK(debugged({script, "a"}) == Strings{kPython, "-m", "debugpy", script, "a"});
    CHECK(debugger_for(command_of({script}), Debugger::automatic) == Debugger::debugpy);
    const std::string shell = dir.write("run", "#!/bin/sh\n", 0755);
    CHECK(debugger_for(command_of({shell}), Debugger::automatic) == Debugger::gdb);
    RankCommand command = command_of({shell});
    const auto done = wait_for_debugger(command, Debugger::debugpy, "127.0.0.1:1", "");
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().message == shell + " is no Python program that debugpy could run");
}

TEST_CASE("any other program waits by gdbserver, which has to be there", "[debug]") {
    const TempDir dir;
    const std::string server = dir.write("gdbserver", "#!/bin/sh\n", 0755);
    RankCommand command = command_of({"/bin/true", "a b", ""});
    REQUIRE(wait_for_debugger(command, Debugger::gdb, dir.path(), dir.path()).has_value());
    CHECK(command.path == "/bin/sh");
    CHECK(Strings(command.argv.begin() + 3, command.argv.end()) ==
          Strings{"sh", server, "--once", "--wrapper", "/bin/sh", dir.path() + "/program.sh", "--",
                  "-", "/bin/true", "a b", ""});
    RankCommand inside = command_of({"/opt/train"});  // of an image, for a wrapper to find
    inside.path.clear();
    REQUIRE(wait_for_debugger(inside, Debugger::gdb, dir.path(), dir.path()).has_value());
    CHECK(inside.argv.back() == "/opt/train");
    RankCommand again = command_of({"/bin/true"});
    CHECK(wait_for_debugger(again, Debugger::gdb, dir.path(), "/nowhere").error().code ==
          Errc::not_found);
}

}  // namespace dtrun
