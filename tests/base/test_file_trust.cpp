#include "base/fd.h"
#include "base/file_trust.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dtrun {
namespace {

constexpr uid_t kUs = 1'000'660'000;  // as of a pod that does not run as root
constexpr gid_t kPod = 4'711;

/// As which user and group a process reads a secret in `folder`: "read", or why it may not.
std::string read_as(uid_t user, gid_t group, const std::string& path) {
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    const pid_t child = ::fork();
    if (child == 0) {
        const bool changed =
            ::setgroups(1, &group) == 0 && ::setgid(group) == 0 && ::setuid(user) == 0;
        const auto text = read_private_file(path, 100, "");
        (void)write_all(pipe->write.get(), !changed ? "no other user"
                                           : text   ? "read " + *text
                                                    : text.error().message);
        ::_exit(0);
    }
    pipe->write.reset();
    char said[1'000];
    const ssize_t n = ::read(pipe->read.get(), said, sizeof said);
    ::waitpid(child, nullptr, 0);
    return {said, static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
}

}  // namespace

TEST_CASE("a secret file is private by what its system does, and by nothing less", "[fd]") {
    struct Row {
        const char* what;
        FileFacts file;
        bool is_private;
    };
    const Row rows[] = {
        {"a file of ours", {kUs, 0, 0100600, false, false}, true},
        {"a file of ours that we cannot change", {kUs, 0, 0100400, false, false}, true},
        {"root's, for root", {0, 0, 0100600, false, false}, true},
        {"a file of ours that a group reads", {kUs, kPod, 0100640, false, false}, false},
        {"a file of ours that all read", {kUs, 0, 0100644, false, false}, false},
        {"a file of ours that others write", {kUs, 0, 0100602, false, false}, false},
        {"another user's", {1'000, 1'000, 0100600, false, false}, false},
        {"systemd's credential", {0, 0, 0100440, false, true}, true},
        {"a credential that all read", {0, 0, 0100444, false, true}, false},
        {"a credential of another group", {0, kPod, 0100440, false, true}, false},
        {"a credential of another user", {1'000, 0, 0100440, false, true}, false},
        {"Kubernetes' Secret", {0, 0, 0100644, true, false}, true},
        {"Kubernetes' Secret with fsGroup", {0, kPod, 0100440, true, false}, true},
        {"Kubernetes' Secret with defaultMode 0400", {0, 0, 0100400, true, false}, true},
        {"Docker's secret", {0, 0, 0100444, true, false}, true},
        {"Docker's secret with uid and mode", {kUs, 0, 0100400, true, false}, true},
        {"a secret of ours there that all read", {kUs, 0, 0100444, true, false}, false},
        {"another user's there", {1'000, 0, 0100444, true, false}, false},
        {"root's there that others write", {0, kPod, 0100660, true, false}, false},
        {"Nomad's template, in memory that is not fixed", {0, 0, 0100644, false, false}, false},
        {"Nomad's template with uid and perms", {kUs, 0, 0100400, false, false}, true},
        {"a file on disk with a pod's group", {0, kPod, 0100440, false, false}, false},
    };
    for (const Row& row : rows) {
        INFO(row.what);
        const auto checked = check_private(row.file, kUs, "/secret");
        CHECK(checked.has_value() == row.is_private);
        if (!checked) CHECK(checked.error().code == Errc::denied);
    }
    CHECK_THAT(
        check_private({kUs, 0, 0100644, false, false}, kUs, "/s").error().message,
        Catch::Contains("others can read it; chmod 600 /s") && Catch::Contains("--secret-fd"));
}

TEST_CASE("a process that is not root reads what Kubernetes and Docker mount for it", "[fd]") {
    if (::geteuid() != 0) return skip_case("only root can mount");
    const TempDir directory;
    const std::string folder = directory.path() + "/secret";
    REQUIRE(::mkdir(folder.c_str(), 0755) == 0);
    REQUIRE(::chmod(directory.path().c_str(), 0755) == 0);
    REQUIRE(::mount("tmpfs", folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") == 0);
    const std::string data = folder + "/..2026";
    REQUIRE(::mkdir(data.c_str(), 0755) == 0);
    {
        const Fd file(::open((data + "/key").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        REQUIRE(::fchown(file.get(), 0, kPod) == 0);
        REQUIRE(::fchmod(file.get(), 0440) == 0);
        REQUIRE(write_all(file.get(), "it").has_value());
    }
    REQUIRE(::symlink("..2026", (folder + "/..data").c_str()) == 0);
    REQUIRE(::symlink("..data/key", (folder + "/key").c_str()) == 0);
    const std::string path = folder + "/key";
    CHECK_THAT(read_as(kUs, kPod, path), Catch::Contains("others can read it"));
    CHECK(::mount(nullptr, folder.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) ==
          0);
    CHECK(read_as(kUs, kPod, path) == "read it");
    CHECK_THAT(read_as(kUs, kPod + 1, path), Catch::Contains("Permission denied"));
    ::umount2(folder.c_str(), MNT_DETACH);
}

}  // namespace dtrun
