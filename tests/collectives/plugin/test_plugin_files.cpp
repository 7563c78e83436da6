#include "collectives/backends/plugin_files.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <sys/stat.h>
#include <algorithm>
#include <cstdlib>
#include <optional>

using namespace dtrun;
using namespace dtrun::collectives;
using Catch::Contains;

namespace {

constexpr const char* kFile = "libdtrun_backend_gloo.so";

/// A variable of the environment, until the end of the test. nullptr: it is not set
class Variable {
public:
    Variable(const char* name, const char* value) : name_(name) {
        if (const char* const before = std::getenv(name)) before_ = before;
        set(value);
    }
    ~Variable() { set(before_ ? before_->c_str() : nullptr); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    void set(const char* value) const {
        if (value != nullptr)
            ::setenv(name_, value, 1);
        else
            ::unsetenv(name_);
    }
    const char* name_;
    std::optional<std::string> before_;
};

std::vector<std::string> names(const std::vector<PluginFolder>& folders) {
    std::vector<std::string> paths;
    for (const PluginFolder& folder : folders) paths.push_back(folder.path.string());
    return paths;
}

bool has(const std::vector<std::string>& paths, const std::string& path) {
    return std::ranges::find(paths, path) != paths.end();
}

}  // namespace

TEST_CASE("plug-ins are beside the library, or where an installation from source has them",
          "[collectives][plugin]") {
    const Variable unset("DTRUN_BACKEND_DIR", nullptr);
    const Variable home("HOME", "/home/me");
    const auto folders = plugin_folders("/venv/lib");
    const auto paths = names(folders);
    CHECK(paths.front() == "/venv/lib/dtrun/backends");
    CHECK_FALSE(folders.front().is_guess);
    CHECK(std::all_of(folders.begin() + 1, folders.end(), [](auto& one) { return one.is_guess; }));
    CHECK(paths[1] == "/home/me/.local/lib/dtrun/backends");
    CHECK(has(paths, "/usr/local/lib/dtrun/backends"));
    CHECK(has(paths, "/usr/lib64/dtrun/backends"));
    // The library's own is not looked into twice, and not with less trust.
    const auto installed = names(plugin_folders("/usr/local/lib"));
    CHECK(std::ranges::count(installed, "/usr/local/lib/dtrun/backends") == 1);
}

TEST_CASE("DTRUN_BACKEND_DIR names folders that go before the library's own",
          "[collectives][plugin]") {
    const Variable two("DTRUN_BACKEND_DIR", ":/a::/b:");
    CHECK(names(plugin_folders("/venv/lib")) ==
          std::vector<std::string>{"/a", "/b", "/venv/lib/dtrun/backends"});
    const Variable none("DTRUN_BACKEND_DIR", ":");
    CHECK(names(plugin_folders("/venv/lib")).front() == "/venv/lib/dtrun/backends");
    const Variable unset("DTRUN_BACKEND_DIR", nullptr);
    const Variable nowhere("HOME", "relative");
    CHECK(names(plugin_folders("/venv/lib"))[1] == "/usr/local/lib/dtrun/backends");
}

TEST_CASE("a plug-in that others can write to is not taken, unless somebody has named its folder",
          "[collectives][plugin]") {
    const TempDir folder;
    const std::string file = folder.write(kFile, "");
    ::chmod(folder.path().c_str(), 0777);
    const PluginFolder guess{folder.path(), true};
    const FoundPlugins found = find_plugins(kFile, {&guess, 1});
    CHECK(found.files.empty());
    REQUIRE(found.refused.size() == 1);
    CHECK(found.refused[0] ==
          fmt::format("{0} is not taken, as others can write to {1}: chmod go-w {1} (or trust it: "
                      "DTRUN_BACKEND_DIR={1})",
                      file, folder.path()));
    const std::string files[] = {kFile};
    CHECK_THAT(missing_plugin(files, {&guess, 1}).message, Contains(found.refused[0]));

    const PluginFolder named{folder.path()};
    CHECK(find_plugins(kFile, {&named, 1}).files == std::vector<std::string>{file});
    ::chmod(folder.path().c_str(), 0755);
    CHECK(find_plugins(kFile, {&guess, 1}).files == std::vector<std::string>{file});
}

TEST_CASE("who misses a plug-in is told where it was looked for and how to build it",
          "[collectives][plugin]") {
    const PluginFolder folders[] = {{"/venv/lib/dtrun/backends"},
                                    {"/nowhere/.local/lib/dtrun/backends", true},
                                    {"/nowhere/.local/lib64/dtrun/backends", true}};
    const std::string gloo[] = {kFile};
    const Error missing = missing_plugin(gloo, folders);
    CHECK(missing.code == Errc::not_found);
    CHECK(missing.message ==
          "no libdtrun_backend_gloo.so in /venv/lib/dtrun/backends, "
          "/nowhere/.local/lib/dtrun/backends");
    CHECK_THAT(way_to_get(gloo, folders),
               Catch::StartsWith(". Packages of dtrun") && Contains("`./dev backends`"));
    const std::string other[] = {"libdtrun_backend_nccl.so"};
    CHECK_THAT(way_to_get(other, folders), Contains("fewer than an installed one"));
    const std::string nobodys[] = {"libdtrun_backend_smoke.so"};
    CHECK(way_to_get(nobodys, folders) == "");
    const TempDir folder;
    folder.write(kFile, "");
    const PluginFolder there{folder.path()};
    CHECK(way_to_get(gloo, {&there, 1}) == "");
}
