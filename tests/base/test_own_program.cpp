// This process's own file, also when another has taken its name.
#include "base/own_program.h"

#include "base/fd.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace dtrun {
namespace {

namespace fs = std::filesystem;

/// What a copy of this program says of its file, after a script has done something to that.
/// \param change  in a shell, in the copy's folder
std::string said_after(const TempDir& folder, const std::string& change) {
    fs::copy_file(own_program().value(), folder.at("copy"));
    const std::string script = fmt::format(
        "cd {} && mkfifo go ready && {{ ./copy '[says_own_program]' <go | grep -a --line-buffered "
        "'^own:' >ready & }} "
        "&& "
        "exec 3>go 4<ready && read line <&4 && {} && echo >&3 && read line <&4 && "
        "printf %s \"$line\" >said; wait",
        folder.path(), change);
    REQUIRE(std::system(script.c_str()) == 0);
    return read_file(folder.at("said")).value();
}

}  // namespace

TEST_CASE("a process says when it runs, and then which file is its own", "[.says_own_program]") {
    std::cout << "own:runs" << std::endl;
    std::string line;
    std::getline(std::cin, line);
    std::cout << "own:" << own_program().value() << std::endl;
}

TEST_CASE("a program whose file was put in place again has that one", "[own_program]") {
    CHECK(fs::exists(own_program().value()));
    const TempDir again, gone;
    CHECK(said_after(again, "cp copy other && mv other copy") ==
          fmt::format("own:{}/copy", fs::canonical(again.path()).native()));
    CHECK(said_after(gone, "rm copy") ==
          fmt::format("own:{}/copy (deleted)", fs::canonical(gone.path()).native()));
}

}  // namespace dtrun
