// The Python package that comes to a host with the agent, as files in a folder of this test.
#include "worker/stored/bundled_package.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/stored/archive.h"

#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

namespace dtrun {

using namespace agent;

namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr std::size_t kMax = 1u << 20;

/// A cache directory to which an agent and its archive were copied.
class Cache {
public:
    explicit Cache(const std::string& tar_words = "--format=gnu pythonpath lib") {
        fs::create_directories(file("made/pythonpath/dtrun"));
        fs::create_directories(file("made/lib"));
        std::ofstream(file("made/pythonpath/dtrun/__init__.py")) << "text";
        std::ofstream(file("made/lib/large")) << std::string(100'000, 'x');
        const std::string command = fmt::format("tar -C {0}/made -czf {0}/package-77.tar.gz {1}",
                                                folder_.path(), tar_words);
        REQUIRE(std::system(command.c_str()) == 0);
        digest = hex(sha256(archive()));
        names = hex(sha256("100000 lib/large\n4 pythonpath/dtrun/__init__.py\n"));
    }

    fs::path file(const std::string& name) const { return folder_.at(name); }
    std::string archive() const { return read_file(file("package-77.tar.gz")).value(); }
    Result<std::string> find(const std::string& agent = "agent-77") const {
        return find_package(file(agent), {digest, names}, file("home/.cache/dtrun"));
    }

    std::string digest, names;

private:
    TempDir folder_;
};

ino_t inode(const fs::path& path) {
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    return info.st_ino;
}

}  // namespace

TEST_CASE("the package that was copied with an agent is unpacked once", "[package]") {
    const Cache cache;
    const auto found = cache.find();
    REQUIRE(found.has_value());
    CHECK(*found == cache.file("package-77").native());
    CHECK(read_file(*found + "/pythonpath/dtrun/__init__.py").value() == "text");
    CHECK(read_file(*found + "/lib/large").value() == std::string(100'000, 'x'));
    fs::remove(cache.file("package-77.tar.gz"));
    CHECK(cache.find().value() == *found);
}

TEST_CASE("a package that others could have changed, or that is damaged, is unpacked anew",
          "[package]") {
    const Cache cache;
    const fs::path folder = cache.find().value();
    const fs::path text = folder / "pythonpath/dtrun/__init__.py";
    const auto spoil = GENERATE_REF(
        std::function([&] { std::ofstream(text) << "longer text"; }),
        std::function([&] { fs::remove(folder / "lib/large"); }),
        std::function([&] { std::ofstream(folder / "lib/more.py") << "more"; }),
        std::function([&] { fs::permissions(folder, fs::perms::all); }),
        std::function([&] { fs::permissions(text, fs::perms::all); }), std::function([&] {
            fs::remove(text);
            std::ofstream(cache.file("text")) << "text";
            fs::create_symlink(cache.file("text"), text);
        }),
        std::function([&] { static_cast<void>(!::chown(text.c_str(), 65'534, 65'534)); }));
    const bool is_root = ::geteuid() == 0;
    const ino_t before = inode(folder);
    REQUIRE(cache.find().value() == folder);
    CHECK(inode(folder) == before);
    spoil();
    REQUIRE(cache.find().value() == folder);
    CHECK((inode(folder) != before || !is_root));
    CHECK(read_file(text).value() == "text");
    CHECK(read_file(folder / "lib/large").value() == std::string(100'000, 'x'));
    CHECK_FALSE(fs::exists(folder / "lib/more.py"));
    for (const auto& entry : fs::directory_iterator(cache.file(".")))
        CHECK_THAT(entry.path().native(), !Contains(".new."));
}

TEST_CASE("a package for which a Python compiles something meanwhile is as it was", "[package]") {
    const Cache cache;
    const fs::path folder = cache.find().value();
    const ino_t before = inode(folder);
    const fs::path compiled = folder / "pythonpath/dtrun/__pycache__";
    fs::create_directory(compiled);
    std::atomic<bool> stops = false;
    std::thread python([&] {
        for (int i = 0; !stops; ++i) {
            const fs::path coming = compiled / fmt::format("__init__.cpython-311.pyc.{}", i);
            std::ofstream(coming) << "compiled";
            fs::rename(coming, compiled / "__init__.cpython-311.pyc");
        }
    });
    int anew = 0;
    for (int i = 0; i < 500; ++i) anew += cache.find() && inode(folder) == before ? 0 : 1;
    stops = true;
    python.join();
    CHECK(anew == 0);
}

TEST_CASE("a package without its archive that others could have changed is not used", "[package]") {
    const Cache cache;
    const fs::path folder = cache.find().value();
    fs::remove(cache.file("package-77.tar.gz"));
    fs::create_directories(folder / "pythonpath/dtrun/__pycache__");  // as Python makes it
    REQUIRE(cache.find().has_value());
    fs::permissions(folder, fs::perms::all);
    const auto found = cache.find();
    REQUIRE_FALSE(found.has_value());
    CHECK_THAT(found.error().message, Contains("remove it, and agent-77 beside it"));
}

TEST_CASE("an installed agent unpacks the archive beside it into the user's cache", "[package]") {
    const Cache cache;
    std::ofstream(cache.file("dtrun-agent")) << "agent";
    fs::rename(cache.file("package-77.tar.gz"), cache.file("dtrun-package.tar.gz"));
    const fs::path folder = cache.find("dtrun-agent").value();
    CHECK(folder == cache.file("home/.cache/dtrun/package-" + cache.digest.substr(0, 40)));
    CHECK(read_file(folder / "pythonpath/dtrun/__init__.py").value() == "text");
    const ino_t before = inode(folder);
    CHECK(cache.find("dtrun-agent").value() == folder);
    CHECK(inode(folder) == before);

    fs::remove_all(cache.file("home/.cache/dtrun"));
    std::ofstream(cache.file("home/.cache/dtrun")) << "a file";
    const auto no_folder = cache.find("dtrun-agent");
    REQUIRE_FALSE(no_folder.has_value());
    CHECK(no_folder.error().code == Errc::not_found);
    CHECK_THAT(no_folder.error().message, Contains("XDG_CACHE_HOME"));

    fs::remove(cache.file("home/.cache/dtrun"));
    std::ofstream(cache.file("dtrun-package.tar.gz"), std::ios::app) << "more";
    const auto damaged = cache.find("dtrun-agent");
    REQUIRE_FALSE(damaged.has_value());
    CHECK_THAT(damaged.error().message, Contains("install dtrun again on this host"));
}

TEST_CASE("an agent beside a dtrun of another CPU has its own archive", "[package]") {
    const Cache cache;
    std::ofstream(cache.file("dtrun-agent-aarch64")) << "agent";
    std::ofstream(cache.file("dtrun-package.tar.gz")) << "of the other";
    fs::create_directories(cache.file("package"));
    fs::rename(cache.file("package-77.tar.gz"), cache.file("dtrun-package-aarch64.tar.gz"));
    CHECK_THAT(cache.find("dtrun-agent-aarch64").value(), Contains("home/.cache/dtrun/package-"));
}

TEST_CASE("nothing is unpacked where others could put their own in its place", "[package]") {
    const Cache cache;
    std::ofstream(cache.file("dtrun-agent")) << "agent";
    fs::rename(cache.file("package-77.tar.gz"), cache.file("dtrun-package.tar.gz"));
    const fs::path home = cache.file("home/.cache");
    fs::create_directories(home);
    fs::permissions(home, fs::perms::all);
    const auto open = cache.find("dtrun-agent");
    REQUIRE_FALSE(open.has_value());
    CHECK(open.error().code == Errc::denied);
    CHECK_THAT(open.error().message,
               Contains("others may write to " + home.native()) && Contains("XDG_CACHE_HOME"));

    fs::permissions(home, fs::perms::all | fs::perms::sticky_bit);  // as /tmp and /var/tmp
    CHECK(cache.find("dtrun-agent").has_value());

    fs::permissions(home, fs::perms::owner_all);
    fs::create_directories(cache.file("shared/dtrun"));
    fs::permissions(cache.file("shared"), fs::perms::all);
    fs::remove_all(home / "dtrun");
    fs::create_symlink(cache.file("shared/dtrun"), home / "dtrun");
    CHECK(cache.find("dtrun-agent").error().code == Errc::denied);
    fs::permissions(cache.file("shared"), fs::perms::owner_all);
    CHECK(cache.find("dtrun-agent").has_value());
    if (::geteuid() ==
        0) {  // who may give a link away: a stranger's leads where it should, until it leads elsewhere
        const fs::path link = home / "dtrun";
        REQUIRE(::lchown(link.c_str(), 65534, 65534) == 0);
        CHECK_THAT(cache.find("dtrun-agent").error().message, Contains("is a link of user 65534"));
    }

    const auto nowhere = find_package(cache.file("dtrun-agent"), {cache.digest, cache.names}, "");
    CHECK(nowhere.error().code == Errc::not_found);
}

TEST_CASE("an installed package into which others may write is not used", "[package]") {
    const Cache cache;
    fs::create_directories(cache.file("package/pythonpath"));
    std::ofstream(cache.file("dtrun-agent")) << "agent";
    REQUIRE(cache.find("dtrun-agent").has_value());
    fs::permissions(cache.file("package/pythonpath"), fs::perms::all);
    const auto found = cache.find("dtrun-agent");
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == Errc::denied);
    CHECK_THAT(found.error().message, Contains("others may write to"));
}

TEST_CASE("agents that unpack a package at the same time leave one, whole", "[package]") {
    const Cache cache;
    std::vector<std::jthread> agents;
    std::array<bool, 8> found{};
    for (bool& whole : found)
        agents.emplace_back([&] {
            const auto folder = cache.find();
            whole = folder && read_file(*folder + "/lib/large").value().size() == 100'000;
        });
    agents.clear();
    CHECK(std::ranges::count(found, true) == std::ssize(found));
    for (const auto& entry : fs::directory_iterator(cache.file(".")))
        CHECK_THAT(entry.path().native(), !Contains(".new."));
}

TEST_CASE("a package is touched when it is used, since others go after a month", "[package]") {
    const Cache cache;
    const fs::path folder = cache.find().value();
    fs::last_write_time(folder, fs::file_time_type::clock::now() - std::chrono::hours(24 * 20));
    REQUIRE(cache.find().has_value());
    CHECK(fs::file_time_type::clock::now() - fs::last_write_time(folder) < std::chrono::hours(1));
}

TEST_CASE("an archive that is damaged is named with what to remove", "[package]") {
    const Cache cache;
    std::ofstream(cache.file("package-77.tar.gz"), std::ios::app) << "more";
    const auto found = cache.find();
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == Errc::invalid_input);
    CHECK_THAT(found.error().message,
               Contains("package-77.tar.gz: damaged; remove it, and agent-77"));
    CHECK_FALSE(fs::exists(cache.file("package-77")));
}

TEST_CASE("an agent without a package, or that was built without one, has none", "[package]") {
    const Cache cache;
    CHECK(cache.find("agent-78").error().code == Errc::not_found);
    CHECK(cache.find("dtrun-agent").error().code == Errc::not_found);
    CHECK(find_package(cache.file("agent-77"), {}, {}).error().code == Errc::not_found);
    fs::create_directory(cache.file("package"));
    CHECK(cache.find("dtrun-agent").value() == cache.file("package").native());
}

TEST_CASE("a cache that programs run from is taken, made or not", "[package]") {
    const TempDir there;
    for (const std::string& cache : {there.path(), there.at("not/made/yet"), std::string()})
        CHECK(cache_for_code(cache, "/elsewhere") == cache);
}

namespace {

/// The files of an archive; nothing: it is refused.
std::optional<std::map<std::string, std::string>> files_of(std::string_view archive,
                                                           std::size_t bytes_max = kMax) {
    std::map<std::string, std::string> files;
    const auto read =
        read_archive(archive, bytes_max,
                     [&files](const std::string& name, std::uint64_t at, std::string_view piece) {
                         CHECK(files[name].size() == at);
                         files[name] += piece;
                         return Result<void>{};
                     });
    if (!read) return std::nullopt;
    return files;
}

}  // namespace

TEST_CASE("an archive has the files of which it was made, of whatever size", "[package]") {
    const TempDir folder;
    std::map<std::string, std::string> files;
    for (const std::size_t size : {0u, 1u, 511u, 512u, 513u, 131'072u, 400'001u}) {
        std::string& bytes = files[fmt::format("some/of-{}", size)];
        for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(i * i % 251);
        fs::create_directories(folder.at("some"));
        std::ofstream(folder.at(fmt::format("some/of-{}", size))) << bytes;
    }
    const std::string command =
        fmt::format("tar -C {0} --format=gnu -czf {0}/all.tar.gz some", folder.path());
    REQUIRE(std::system(command.c_str()) == 0);
    const std::string archive = read_file(folder.at("all.tar.gz")).value();
    CHECK(files_of(archive) == files);
    int taken = 0;
    const auto ended =
        read_archive(archive, kMax, [&taken](const std::string&, std::uint64_t, std::string_view) {
            ++taken;
            return Result<void>(fail(Errc::denied, "no room"));
        });
    CHECK(taken == 1);
    REQUIRE_FALSE(ended.has_value());
    CHECK(ended.error().message == "no room");
}

TEST_CASE("an archive with anything but plain files is refused", "[package]") {
    CHECK(files_of(Cache().archive()).value().size() == 2);
    CHECK_FALSE(files_of(Cache().archive(), 1000).has_value());
    CHECK_FALSE(files_of(Cache().archive().substr(0, 150)).has_value());
    CHECK_FALSE(files_of("no archive").has_value());
    CHECK_FALSE(files_of(Cache("--format=gnu -P --transform=s,lib,../lib, lib").archive()));
    CHECK_FALSE(files_of(Cache("--format=pax lib").archive()));
}

TEST_CASE(
    "the package comes last in PYTHONPATH, before all what its ranks start with, and then "
    "horovod's",
    "[package]") {
    contracts::Environment env;
    add_to_python_path("/p", false, env);
    CHECK(env["PYTHONPATH"] == "/p/dtrun_startup:/p/pythonpath");
    env["PYTHONPATH"] = "/mine:/other";
    add_to_python_path("/p", false, env);
    CHECK(env["PYTHONPATH"] == "/p/dtrun_startup:/mine:/other:/p/pythonpath");
    env["PYTHONPATH"] = "/mine";
    add_to_python_path("/p", true, env);
    CHECK(env["PYTHONPATH"] ==
          "/p/dtrun_startup:/p/lib/dtrun/python/horovod_shim:/mine:/p/pythonpath");
}

TEST_CASE("a package that was unpacked, and used, without any umask is not unpacked again",
          "[package]") {
    const Cache cache;
    const mode_t before = ::umask(0);
    const auto found = cache.find();
    const fs::path package = cache.file("package-77");
    fs::create_directory(package / "pythonpath/dtrun/__pycache__");  // as Python does
    ::umask(before);
    REQUIRE(found.has_value());
    const ino_t first = inode(package);
    CHECK(cache.find() == package.native());
    CHECK(inode(package) == first);
}

}  // namespace dtrun
