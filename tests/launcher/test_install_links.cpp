// Links to dtrun under the names of other launchers.
#include "launcher/cli/other_names.h"
#include "launcher/commands/install_links.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <filesystem>

namespace dtrun::commands {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

std::string error_of_links(std::string_view typed) {
    const std::vector<std::string> words = shell_words(typed).value();
    return message_of(parse_links(words));
}

/// A folder with a program named dtrun.
struct Installed {
    Installed() : program(folder.write("dtrun", "a program", 0755)) {}
    LinkPlace place(const std::string& named = "", const Environment& environment = {}) const {
        return link_place(program, named, environment);
    }
    TempDir folder;
    std::string program;
};

TEST_CASE("dtrun install-links takes names that dtrun answers to", "[launcher][cli][links]") {
    CHECK(error_of_links("torchrun mpirun --dir /d --force") == "no error");
    CHECK(error_of_links("--remove") == "no error");
    CHECK_THAT(error_of_links(""),
               Contains("usage: dtrun install-links") && Contains("horovodrun"));
    CHECK_THAT(error_of_links("torchrn"),
               Contains("does not answer to the name 'torchrn'; did you mean torchrun?"));
    CHECK_THAT(error_of_links("../../torchrun"), Contains("does not answer to the name"));
    CHECK_THAT(error_of_links("--remove --force torchrun"), Contains("--force"));
}

TEST_CASE("links stand beside dtrun and lead to it wherever both are moved",
          "[launcher][cli][links]") {
    const Installed here;
    const LinkPlace place = here.place();
    CHECK(place.folder == here.folder.path());
    REQUIRE(make_link(place, "torchrun", false));
    CHECK(fs::read_symlink(here.folder.at("torchrun")) == "dtrun");
    CHECK(make_link(place, "torchrun", false).value() ==
          here.folder.at("torchrun") + " leads to dtrun already");
}

TEST_CASE("links stand where PATH finds dtrun, which may be a link itself",
          "[launcher][cli][links]") {
    const Installed here;
    const TempDir bin;
    fs::create_symlink(here.program, bin.at("dtrun"));
    const LinkPlace place =
        here.place("", {"PATH=/nowhere:" + bin.path() + ":" + here.folder.path()});
    CHECK(place.folder == bin.path());
    CHECK(place.target == "dtrun");
    const TempDir elsewhere;
    CHECK(here.place(elsewhere.path()).target == here.program);
}

TEST_CASE("what is not dtrun's stays unless it is forced away", "[launcher][cli][links]") {
    const Installed here;
    const std::string theirs = here.folder.write("mpirun", "theirs", 0755);
    const LinkPlace place = here.place();
    CHECK_THAT(message_of(make_link(place, "mpirun", false)), Contains("--force replaces it"));
    CHECK_THAT(message_of(remove_link(place, "mpirun")), Contains("and stays"));
    CHECK_FALSE(fs::is_symlink(theirs));
    REQUIRE(make_link(place, "mpirun", true));
    CHECK(fs::read_symlink(theirs) == "dtrun");
    // Nothing else is left of the replacing.
    CHECK(std::distance(fs::directory_iterator(here.folder.path()), fs::directory_iterator()) == 2);
    fs::create_directory(here.folder.at("deepspeed"));
    CHECK_THAT(message_of(make_link(place, "deepspeed", true)), Contains("is a folder"));
    CHECK_THAT(message_of(make_link(here.place("/nowhere"), "mpirun", true)),
               Contains("/nowhere: no such folder"));
}

TEST_CASE("only links that lead to this dtrun are removed", "[launcher][cli][links]") {
    const Installed here;
    const Installed other;
    const LinkPlace place = here.place();
    REQUIRE(make_link(place, "horovodrun", false));
    CHECK(remove_link(place, "horovodrun").value() == here.folder.at("horovodrun") + " is removed");
    CHECK_FALSE(fs::exists(fs::symlink_status(here.folder.at("horovodrun"))));
    CHECK(remove_link(place, "horovodrun").value() ==
          here.folder.at("horovodrun") + " is not there");
    fs::create_symlink(other.program, here.folder.at("mpiexec"));
    fs::create_symlink("/nowhere", here.folder.at("mpirun"));
    CHECK_FALSE(remove_link(place, "mpiexec"));
    CHECK_FALSE(remove_link(place, "mpirun"));
}

TEST_CASE("it is said when a shell starts something else by that name", "[launcher][cli][links]") {
    const Installed here;
    const TempDir before;
    const LinkPlace place = here.place();
    REQUIRE(make_link(place, "mpirun", false));
    const std::string path = "PATH=" + before.path() + ":" + here.folder.path();
    CHECK(hidden_by(place, "mpirun", Environment{path}).empty());
    const std::string theirs = before.write("mpirun", "theirs", 0755);
    CHECK_THAT(hidden_by(place, "mpirun", Environment{path}),
               Contains("mpirun is " + theirs + " before"));
    CHECK(hidden_by(place, "mpirun", Environment{"PATH=/nowhere"}) ==
          here.folder.path() + " is not in PATH");
}

}  // namespace
}  // namespace dtrun::commands
