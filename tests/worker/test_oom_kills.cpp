#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/ranks/oom_kills.h"

#include <filesystem>

using namespace dtrun;
using ranks::oom_kills;

namespace {

/// A machine on which the OOM killer has ended nine processes, few of them in our cgroup.
struct Machine {
    TempDir dir{};

    explicit Machine(const std::string& groups) {
        with("proc/self/cgroup", groups);
        with("proc/vmstat", "nr_free_pages 5\noom_kill 9\nballoon_inflate 0\n");
    }
    Machine& with(const std::string& file, const std::string& text) {
        std::filesystem::create_directories(std::filesystem::path(dir.at(file)).parent_path());
        dir.write(file, text);
        return *this;
    }
    std::uint64_t kills() const { return oom_kills(dir.path()); }
};

constexpr const char* kEvents = "low 0\nhigh 0\nmax 7\noom 4\noom_kill 2\noom_group_kill 0\n";
constexpr const char* kControl = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";

}  // namespace

TEST_CASE("who ran out of memory elsewhere on the machine is not counted", "[supervisor]") {
    const std::string step = "sys/fs/cgroup/slurm/job_7/step_0";
    CHECK(Machine("0::/slurm/job_7/step_0\n").with(step + "/memory.events", kEvents).kills() == 2);
    CHECK(
        Machine("0::/slurm/job_7/step_0/task_1\n").with(step + "/memory.events", kEvents).kills() ==
        2);
    CHECK(Machine("4:memory:/job_7\n0::/\n")
              .with("sys/fs/cgroup/memory/job_7/memory.oom_control", kControl)
              .kills() == 3);
    CHECK(Machine("4:cpu,memory:/docker/1a\n")
              .with("sys/fs/cgroup/memory/memory.oom_control", kControl)
              .kills() == 3);
}

TEST_CASE("where no cgroup tells of them, the machine's processes without memory are counted",
          "[supervisor]") {
    CHECK(Machine("0::/\n").kills() == 9);
    CHECK(Machine("").kills() == 9);
    CHECK(Machine("0::/a\n").with("sys/fs/cgroup/a/memory.events", "oom_kill many\n").kills() == 9);
    CHECK(oom_kills(TempDir().path()) == 0);
}
