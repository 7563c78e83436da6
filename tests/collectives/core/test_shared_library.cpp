#include "collectives/backends/shared_library.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <filesystem>

namespace fs = std::filesystem;
using namespace dtrun::collectives;

TEST_CASE("What lies beside a library is not looked for in the current directory once it is gone",
          "[collectives]") {
    const dtrun::TempDir directory;
    const fs::path folder = fs::canonical(directory.path());
    Dl_info system{};
    REQUIRE(::dladdr(reinterpret_cast<const void*>(&::dlopen), &system) != 0);
    // A library of the system's, under a name of ours.
    fs::copy_file(fs::path(system.dli_fname).parent_path() / "libgcc_s.so.1",
                  folder / "libgone.so");
    void* const library = ::dlopen((folder / "libgone.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    const auto function = function_of<void()>(library, "_Unwind_Backtrace");
    REQUIRE(function != nullptr);
    CHECK(folder_of(function) == folder);
    fs::remove(folder / "libgone.so");
    CHECK(folder_of(function) == folder);
}
