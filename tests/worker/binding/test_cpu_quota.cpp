#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/binding/cpu_quota.h"

#include <filesystem>

using namespace dtrun;
using namespace dtrun::binding;

namespace {

/// A machine of which only /proc/self/cgroup and files below /sys/fs/cgroup are there.
class CgroupFiles {
public:
    explicit CgroupFiles(const std::string& groups) { write("proc/self/cgroup", groups); }

    CgroupFiles& with(const std::string& file, const std::string& text) {
        write("sys/fs/cgroup/" + file, text);
        return *this;
    }
    std::optional<std::uint32_t> quota() const { return cpu_quota(dir_.path()); }

private:
    void write(const std::string& file, const std::string& text) {
        std::filesystem::create_directories(std::filesystem::path(dir_.at(file)).parent_path());
        dir_.write(file, text);
    }

    TempDir dir_;
};

}  // namespace

TEST_CASE("a quota of processors is the least of the groups around a process, rounded up",
          "[binding]") {
    CHECK(CgroupFiles("0::/\n").with("cpu.max", "250000 100000\n").quota() == 3u);
    CHECK(CgroupFiles("0::/\n").with("cpu.max", "max 100000\n").quota() == std::nullopt);
    CHECK(CgroupFiles("0::/a/b\n")
              .with("a/b/cpu.max", "max 100000\n")
              .with("a/cpu.max", "400000 100000\n")
              .quota() == 4u);
    CHECK(CgroupFiles("0::/a/b\n")
              .with("a/b/cpu.max", "50000 100000\n")
              .with("a/cpu.max", "400000 100000\n")
              .quota() == 1u);
    CHECK(CgroupFiles("0::/\n").quota() == std::nullopt);
    CHECK(CgroupFiles("").with("cpu.max", "100000 100000\n").quota() == std::nullopt);
}

TEST_CASE("a quota of the first version of cgroups counts, also where a container hides its path",
          "[binding]") {
    const std::string groups = "5:memory:/docker/1a\n4:cpu,cpuacct:/docker/1a\n0::/\n";
    CHECK(CgroupFiles(groups)
              .with("cpu/cpu.cfs_quota_us", "200000\n")
              .with("cpu/cpu.cfs_period_us", "100000\n")
              .quota() == 2u);
    CHECK(CgroupFiles(groups)
              .with("cpu/docker/1a/cpu.cfs_quota_us", "-1\n")
              .with("cpu/docker/1a/cpu.cfs_period_us", "100000\n")
              .quota() == std::nullopt);
}
