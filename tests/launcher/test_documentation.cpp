#include "launcher/cli/documentation.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <filesystem>
#include <fstream>
#include <optional>

namespace dtrun::cli {
namespace {

void make_page(const std::filesystem::path& docs) {
    std::filesystem::create_directories(docs / "guide");
    std::ofstream(docs / "guide/first-steps.md") << "# First steps\n";
}

TEST_CASE("a program finds the documentation that is installed with it, or that of its sources",
          "[cli]") {
    const TempDir folder;
    const std::filesystem::path top = folder.path();
    CHECK(documentation_of(top / "prefix/bin/dtrun") == std::nullopt);
    make_page(top / "prefix/share/doc/dtrun/docs");
    CHECK(documentation_of(top / "prefix/bin/dtrun") == top / "prefix/share/doc/dtrun/docs");
    make_page(top / "sources/docs");
    CHECK(documentation_of(top / "sources/build/release/bin/dtrun") == top / "sources/docs");
}

}  // namespace
}  // namespace dtrun::cli
