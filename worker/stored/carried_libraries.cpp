#include "worker/stored/carried_libraries.h"

#include "base/linked_libraries.h"
#include "base/log.h"
#include "base/process/command_output.h"
#include "base/strings.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

namespace dtrun::agent {
namespace {

constexpr std::array<std::string_view, 2> kCarried{"libdtrun.so.0", "libdtrun_collectives.so.0"};
constexpr std::chrono::seconds kLoaderLimit{2};  // for a file system that is slow
constexpr const char* kVariable = "LD_LIBRARY_PATH";

bool is_carried(std::string_view library) {
    return std::ranges::find(kCarried, library) != kCarried.end();
}

}  // namespace

bool lacks_carried_library(const std::string& program, const std::string& directory,
                           const contracts::Environment& env) {
    const std::string path = (std::filesystem::path(directory) / program).native();
    const LinkedLibraries linked = linked_libraries(path);
    if (std::ranges::none_of(linked.needed, is_carried)) return false;
    if (linked.loader.find("/ld-linux") == std::string::npos) return false;  // of glibc
    const auto variable = env.find(kVariable);
    // As ldd asks: it lists what it would load, and goes on behind what it does not find.
    const auto said =
        command_output({"env", "LD_TRACE_LOADED_OBJECTS=1", linked.loader, "--library-path",
                        variable != env.end() ? variable->second : "", path},
                       Captured::out_alone, kLoaderLimit);
    if (!said) {
        // Without a library that it names the program would not start; with one too many behind all others it does.
        log::info("{}: its loader does not say where it finds its libraries: {}", path,
                  said.error().message);
        return true;
    }
    return std::ranges::any_of(split(said->text, '\n'), [](std::string_view line) {
        const std::size_t end = line.find(" => not found");
        return end != line.npos && is_carried(trim(line.substr(0, end)));
    });
}

void add_to_library_path(const std::string& package, contracts::Environment& env) {
    std::string& path = env[kVariable];
    path += (path.empty() ? "" : ":") + package + "/lib";
}

}  // namespace dtrun::agent
