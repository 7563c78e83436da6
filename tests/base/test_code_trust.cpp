#include "base/code_trust.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

#include <sys/stat.h>
#include <unistd.h>

using namespace dtrun;

namespace {

constexpr uid_t kUser = 1'000'660'000;
constexpr gid_t kGroup = 4'711;

/// Why a file may not run for this user; "" if it may.
std::string refusal(const std::string& path) {
    const auto checked = check_code(path, ::geteuid());
    return checked ? "" : checked.error().message;
}

std::string writable(const std::string& path) {
    return fmt::format("others can write to {0}: chmod go-w {0}", path);
}

}  // namespace

TEST_CASE("code that nobody has named runs only where nobody else can change it", "[fd]") {
    const TempDir directory;  // below /tmp, which is sticky
    const std::string folder = directory.at("lib"), file = folder + "/x.so";
    const std::string link = directory.at("x.so");
    REQUIRE(::mkdir(folder.c_str(), 0755) == 0);
    directory.write("lib/x.so", "");
    REQUIRE(::symlink("lib/x.so", link.c_str()) == 0);
    for (const std::string& path : {file, folder, directory.path()})
        REQUIRE(::chmod(path.c_str(), 0755) == 0);
    CHECK(*check_code(file, ::geteuid()) == file);
    CHECK(*check_code(link, ::geteuid()) == file);
    CHECK(check_code(folder + "/none", ::geteuid()).error().code == Errc::not_found);
    for (const std::string& path : {file, folder, directory.path()}) {
        ::chmod(path.c_str(), 0757);
        CHECK(refusal(file) == writable(path));
        CHECK(refusal(link) == writable(path));
        ::chmod(path.c_str(), 0755);
    }
    ::chmod(directory.path().c_str(), 01777);  // others cannot rename what is ours
    CHECK(refusal(file) == "");
    CHECK(refusal(link) == writable(directory.path()));
}

TEST_CASE("the user's own group may change code, and no other", "[fd]") {
    if (::geteuid() != 0) return skip_case("only root can give files away");
    const TempDir directory;
    const std::string file = directory.write("x.so", "");
    ::chmod(directory.path().c_str(), 0755);
    ::chmod(file.c_str(), 0664);
    REQUIRE(::chown(file.c_str(), 0, 0) == 0);
    CHECK(refusal(file) == "");  // root's has no other member
    REQUIRE(::chown(file.c_str(), 0, kGroup) == 0);
    CHECK(refusal(file) == writable(file));
    ::chmod(file.c_str(), 0644);
    REQUIRE(::chown(file.c_str(), kUser, kGroup) == 0);
    CHECK(refusal(file) == fmt::format("{} belongs to somebody else, user {}", file, kUser));
    CHECK(check_code(file, kUser).has_value());
}
