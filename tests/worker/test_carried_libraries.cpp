// Which programs are offered the libraries that came with the agent.
#include "worker/stored/carried_libraries.h"

#include "base/linked_libraries.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <algorithm>
#include <filesystem>

namespace dtrun::agent {

TEST_CASE("a program's own libraries and its loader are read from its file", "[carried]") {
    const LinkedLibraries linked = linked_libraries(DTRUN_LACKS_LIBDTRUN);
    CHECK(std::ranges::count(linked.needed, "libdtrun.so.0") == 1);
    CHECK(std::filesystem::exists(linked.loader));
    const TempDir directory;
    for (const std::string& none : {std::string("/nowhere"), std::string("/"),
                                    directory.write("script", "#!/bin/sh\n", 0755)}) {
        CHECK(linked_libraries(none).needed.empty());
        CHECK(linked_libraries(none).loader.empty());
    }
}

TEST_CASE("only who would find no libdtrun is offered the carried one", "[carried]") {
    const contracts::Environment none, there{{"LD_LIBRARY_PATH", "/nowhere:" DTRUN_LIBRARIES}};
    CHECK(lacks_carried_library(DTRUN_LACKS_LIBDTRUN, "/", none));
    CHECK_FALSE(lacks_carried_library(DTRUN_LACKS_LIBDTRUN, "/", there));
    CHECK_FALSE(lacks_carried_library(DTRUN_HAS_LIBDTRUN, "/", none));
    CHECK_FALSE(lacks_carried_library("/bin/sh", "/", none));
    CHECK_FALSE(lacks_carried_library("/nowhere", "/", none));
    const std::filesystem::path program = DTRUN_LACKS_LIBDTRUN;
    CHECK(lacks_carried_library("./" + program.filename().native(), program.parent_path(), none));
}

TEST_CASE("the carried libraries come last in LD_LIBRARY_PATH", "[carried]") {
    contracts::Environment env;
    add_to_library_path("/p", env);
    CHECK(env["LD_LIBRARY_PATH"] == "/p/lib");
    env["LD_LIBRARY_PATH"] = "/mine";
    add_to_library_path("/p", env);
    CHECK(env["LD_LIBRARY_PATH"] == "/mine:/p/lib");
}

}  // namespace dtrun::agent
