// dtrun's Python package on hosts where nothing was installed: it comes with the agent.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include <fmt/format.h>
#include <string>
#include <vector>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_carried {

constexpr const char* kPython = "/usr/bin/python3";
constexpr const char* kHosts = "s1:1,s2:1";
constexpr const char* kSum = R"(
import array, dtrun
from dtrun.collectives import Communicator
with dtrun.Worker() as worker, Communicator(worker) as comm:
    numbers = array.array("f", [worker.rank + 1.0] * 1000)
    comm.allreduce(numbers, op="sum")
    print(worker.rank, comm.backend, numbers[999], dtrun.__file__)
)";
constexpr const char* kHorovod = R"(
import horovod.torch as hvd, torch
hvd.init()
print(hvd.rank(), hvd.allreduce(torch.full((3,), float(hvd.rank())), op=hvd.Sum).tolist(), hvd.__name__)
)";

Lines python(Lines words, const std::string& program) {
    words.insert(words.end(), {kPython, "-c", program});
    return words;
}

TEST_CASE("ranks import dtrun on hosts where nothing was installed", "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    for (const char* const host : {"s1", "s2"})
        REQUIRE(cluster.run(host, {kPython, "-c", "import dtrun"}).exit_code != 0);
    for (const char* const when : {"first", "again"}) {
        const Finished done = cluster.dtrun(python({"-H", kHosts, "--tag", "none"}, kSum));
        INFO(when << ": " << done.out << done.err);
        CHECK(done.exit_code == 0);
        for (const char* const rank : {"0", "1"})
            CHECK_THAT(done.out,
                       Contains(fmt::format("{} dtrun 3.0 /root/.cache/dtrun/package-", rank)));
    }
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("an agent that has come packed is the one that was sent", "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    for (const char* const by : {"ssh", ""}) {  // by our own log-in hosts so near get it as it is
        cluster.run("s1", {"rm", "-rf", "/root/.cache/dtrun"});
        Lines words{"-H", "s1", "true"};
        if (*by != '\0') words.insert(words.begin(), {"--ssh-command", by});
        const Finished done = cluster.dtrun(words);
        INFO(by << done.err);
        CHECK(done.exit_code == 0);
        const std::string agent =
            (std::filesystem::path(Cluster::program()).parent_path() / "dtrun-agent").native();
        CHECK(cluster.run("s1", {"sh", "-c", "cmp ~/.cache/dtrun/agent-* " + agent}).exit_code ==
              0);
    }
}

TEST_CASE("ranks have dtrun store on hosts where nothing was installed, and no folder of it stays",
          "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    const Finished done = cluster.dtrun(
        {"-H", kHosts, "--tag", "none", "sh", "-c",
         "dtrun store set from/$DTRUN_RANK $(hostname) && dtrun store wait from/0 from/1 && "
         "echo $(dtrun store get from/0) $(dtrun store get from/1) && command -v dtrun"});
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, "s1 s2\n") == 2);
    CHECK(count_of(done.out, "/dtrun-job-") == 2);
    CHECK(cluster.wait_all_gone());
    for (const char* const host : {"s1", "s2"})
        CHECK(cluster.run(host, {"sh", "-c", "ls -d /dev/shm/dtrun-job-* /tmp/dtrun-job-*"}).out ==
              "");
}

TEST_CASE("ranks on dtrun's own machine import the dtrun beside it", "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    const Finished done = cluster.dtrun(python({"-np", "2", "--tag", "none"}, kSum));
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, " dtrun 3.0 ") == 2);
    CHECK(count_of(done.out, "/bin/package/lib/dtrun/python/dtrun/__init__.py") == 2);
}

TEST_CASE("a dtrun that the user has put into PYTHONPATH wins", "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    const auto own = cluster.scratch() / "own";
    std::filesystem::create_directories(own);
    REQUIRE(cluster
                .run("head",
                     {"sh", "-c", fmt::format("echo 'print(__file__)' >{}/dtrun.py", own.native())})
                .exit_code == 0);
    const Finished done = cluster.dtrun(python(
        {"-H", kHosts, "-x", "PYTHONPATH=" + own.native(), "--tag", "none"}, "import dtrun"));
    INFO(done.out << done.err);
    CHECK(count_of(done.out, (own / "dtrun.py").native()) == 2);
}

TEST_CASE("ranks of a user who is not root import dtrun, too", "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    const Finished done =
        cluster.dtrun(python({"-H", "dtuser@s1:1,dtuser@s2:1", "--tag", "none"}, kSum));
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    CHECK(count_of(done.out, " dtrun 3.0 /home/dtuser/.cache/dtrun/package-") == 2);
}

TEST_CASE("a host uses the agent that an administrator has installed, and stores nothing",
          "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    const std::filesystem::path here = std::filesystem::path(Cluster::program()).parent_path();
    const auto libexec = cluster.scratch() / "libexec";
    std::filesystem::create_directories(libexec / "dtrun");
    std::filesystem::copy_file(here / "dtrun-agent", libexec / "dtrun/dtrun-agent");
    cluster.bind("s1", libexec, "/usr/libexec");
    const auto places = [&] {
        const Finished done =
            cluster.dtrun({"-H", kHosts, "--tag", "none", "sh", "-c", "readlink /proc/$PPID/exe"});
        INFO(done.out << done.err);
        CHECK(done.exit_code == 0);
        return sorted_lines(done.out);
    };
    for (const char* const host : {"s1", "s2"})
        cluster.run(host, {"rm", "-rf", "/root/.cache/dtrun"});
    const Lines installed = places();
    CHECK_THAT(installed.front(), Contains("/root/.cache/dtrun/agent-"));
    CHECK(installed.back() == "/usr/libexec/dtrun/dtrun-agent");
    CHECK(cluster.run("s1", {"test", "-e", "/root/.cache/dtrun"}).exit_code != 0);
    // Another version's is left alone.
    std::filesystem::remove(libexec / "dtrun/dtrun-agent");
    std::filesystem::copy_file("/bin/true", libexec / "dtrun/dtrun-agent");
    CHECK_THAT(places().back(), Contains("/root/.cache/dtrun/agent-"));
    cluster.unbind("s1", "/usr/libexec");
}

TEST_CASE("with an installed agent ranks import dtrun also where homes are mounted noexec",
          "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    const std::filesystem::path here = std::filesystem::path(Cluster::program()).parent_path();
    const auto libexec = cluster.scratch() / "libexec-whole";
    std::filesystem::create_directories(libexec / "dtrun");
    for (const char* const file : {"dtrun-agent", "dtrun-package.tar.gz"})
        std::filesystem::copy_file(here / file, libexec / "dtrun" / file);
    cluster.bind("s1", libexec, "/usr/libexec");
    const char* const kMount =
        "mkdir -p /root/.cache && mount -t tmpfs -o noexec none /root/.cache";
    REQUIRE(cluster.run("s1", {"sh", "-c", kMount}).exit_code == 0);
    const Finished done = cluster.dtrun(python({"-H", "s1:2"}, kSum));
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.out, Contains("0 dtrun 3.0 /var/tmp/dtrun-0/package-"));
    cluster.run("s1", {"sh", "-c", "umount /root/.cache; rm -rf /var/tmp/dtrun-0"});
    cluster.unbind("s1", "/usr/libexec");
}

TEST_CASE("a package that is damaged on a host is told, and ranks run without it",
          "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    const Lines words{"-H", "s1:1,s2:1", "true"};
    REQUIRE(cluster.dtrun(words).exit_code == 0);
    const auto damage =
        "cd /root/.cache/dtrun; rm -r package-*[0-9a-f]; for f in package-*; do echo no >$f; done";
    REQUIRE(cluster.run("s1", {"sh", "-c", damage}).exit_code == 0);
    const Finished done = cluster.dtrun(words);
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, Contains("s1") && Contains("damaged; remove it, and agent-"));
    CHECK_THAT(cluster.dtrun({"--horovod-shim", "-H", "s1:1,s2:1", "true"}).err,
               Contains("damaged; remove it") && Contains("--horovod-shim"));
    const Finished removed = cluster.run("s1", {"rm", "-rv", "/root/.cache/dtrun"});
    INFO(removed.out << removed.err);
    REQUIRE(removed.exit_code == 0);
    const Finished anew = cluster.dtrun(words);
    INFO(anew.err << cluster.run("s1", {"ls", "-laR", "/root/.cache/dtrun"}).out);
    CHECK(without_news(anew.err).empty());
}

TEST_CASE("with --horovod-shim a script for Horovod runs where Horovod is not",
          "[cluster][python]") {
    Cluster& cluster = Cluster::shared(2);
    if (cluster.run("head", {kPython, "-c", "import torch"}).exit_code != 0) {
        skip_case("no torch");
        return;
    }
    const Finished done =
        cluster.dtrun(python({"--horovod-shim", "-H", kHosts, "--tag", "none"}, kHorovod));
    INFO(done.out << done.err);
    CHECK(done.exit_code == 0);
    for (const char* const rank : {"0", "1"})
        CHECK_THAT(done.out, Contains(fmt::format("{} [1.0, 1.0, 1.0] horovod.torch", rank)));
    CHECK(cluster.wait_all_gone());
}

}  // namespace test_carried
