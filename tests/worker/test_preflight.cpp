#include "rendezvous/wire/start_messages.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/agent/preflight.h"

namespace dtrun {

using namespace agent;
namespace {

Preflight check(const Bootstrap& bootstrap, std::vector<std::string> host_env = {"HOME=/"}) {
    std::vector<char*> env;
    for (std::string& entry : host_env) env.push_back(entry.data());
    env.push_back(nullptr);
    return check_host(bootstrap, env.data());
}

}  // namespace

TEST_CASE("what the caller sends wins over the host's own environment", "[preflight]") {
    Bootstrap bootstrap;
    bootstrap.argv = {"true"};
    bootstrap.env = {{"PATH", "/bin"}, {"A", "caller"}};
    const Preflight found =
        check(bootstrap, {"HOME=/", "A=host", "B=host", "_=/bin/sh", "SHLVL=3"});
    CHECK(found.problem == HostProblem::none);
    CHECK(found.program == "/bin/true");
    CHECK(found.env.at("A") == "caller");
    CHECK(found.env.at("B") == "host");
    CHECK_FALSE(found.env.contains("_"));
    CHECK_FALSE(found.env.contains("SHLVL"));
    CHECK(found.env.at("PWD") == found.directory);
}

TEST_CASE("a rank is no task of the step that started its agent, but on the same node",
          "[preflight]") {
    Bootstrap bootstrap;
    bootstrap.argv = {"/bin/true"};
    bootstrap.env = {{"SLURM_NTASKS", "8"}};
    const std::vector<std::string> host{
        "HOME=/",     "SLURM_STEP_ID=3",    "SLURM_NTASKS=2",
        "PMI_RANK=1", "SLURM_JOB_GPUS=0,1", "CUDA_VISIBLE_DEVICES=0,1"};
    CHECK(check(bootstrap, host).env.contains("SLURM_STEP_ID"));  // it is no scheduler's agent
    bootstrap.nodes = {"s1", "s2"};
    const Preflight found = check(bootstrap, host);
    CHECK_FALSE(found.env.contains("SLURM_STEP_ID"));
    CHECK_FALSE(found.env.contains("PMI_RANK"));
    CHECK(found.env.at("SLURM_NTASKS") == "8");
    CHECK(found.env.at("SLURM_JOB_GPUS") == "0,1");
    CHECK(found.env.at("CUDA_VISIBLE_DEVICES") == "0,1");
}

TEST_CASE("of several programs a host looks for those that its ranks run", "[preflight]") {
    Bootstrap bootstrap;
    bootstrap.host = HostId{1};
    bootstrap.argv = {"/no/such/program"};
    bootstrap.programs = {{{"/no/such/program"}, {}, "", 2, {HostId{0}}},
                          {{"true"}, {{"PATH", "/bin"}}, "/tmp", 1, {HostId{0}, HostId{1}}},
                          {{"/bin/false"}, {}, "", 1, {HostId{1}}}};
    const Preflight found = check(bootstrap);
    CHECK(found.problem == HostProblem::none);
    CHECK(found.program.empty());
    REQUIRE(found.programs.size() == 3);
    CHECK(found.programs[0].path.empty());
    CHECK(found.programs[1].path == "/bin/true");
    CHECK(found.programs[1].directory == "/tmp");
    CHECK(found.programs[2].path == "/bin/false");
    CHECK(found.programs[2].directory == found.directory);
    CHECK(program_of(bootstrap.programs, Rank{1}) == 0);
    CHECK(program_of(bootstrap.programs, Rank{2}) == 1);
    CHECK(program_of(bootstrap.programs, Rank{3}) == 2);
    bootstrap.programs[1].directory = "/no/such/directory";
    CHECK(check(bootstrap).problem == HostProblem::directory_missing);
    bootstrap.programs[1].directory.clear();
    bootstrap.programs[2].argv = {"/no/such"};
    CHECK(check(bootstrap).problem == HostProblem::program_missing);
}

TEST_CASE("a directory that is missing is home, or an error when it was asked for", "[preflight]") {
    const TempDir home;
    Bootstrap bootstrap;
    bootstrap.argv = {"/bin/true"};
    bootstrap.directory = "/no/such/directory";
    CHECK(check(bootstrap, {"HOME=" + home.path()}).directory == home.path());
    bootstrap.directory_required = true;
    const Preflight found = check(bootstrap);
    CHECK(found.problem == HostProblem::directory_missing);
    CHECK(found.problem_text == "/no/such/directory: No such file or directory (--wdir)");
}

TEST_CASE("a program that is missing or not executable is a problem of the host", "[preflight]") {
    const TempDir dir;
    Bootstrap bootstrap;
    bootstrap.argv = {dir.write("data", "")};
    CHECK(check(bootstrap).problem == HostProblem::not_executable);
    bootstrap.argv = {"no-such-program"};
    CHECK(check(bootstrap).problem == HostProblem::program_missing);
}

TEST_CASE("of the interfaces asked for the first that is there is taken", "[preflight]") {
    Bootstrap bootstrap;
    bootstrap.argv = {"/bin/true"};
    bootstrap.network_interfaces = {"ib7", "lo"};
    CHECK(check(bootstrap).interface == "lo");
    bootstrap.network_interfaces = {"ib7"};
    const Preflight found = check(bootstrap);
    CHECK(found.problem == HostProblem::other);
    CHECK(
        found.problem_text.starts_with("no network interface ib7 (--network-interfaces); it has "));
}

TEST_CASE("more ranks than a host can open files for are a problem of the host", "[preflight]") {
    Bootstrap bootstrap;
    bootstrap.argv = {"/bin/true"};
    bootstrap.binding.ranks = {4};
    CHECK(check(bootstrap).problem == HostProblem::none);
    bootstrap.binding.ranks = {UINT32_MAX};
    const Preflight found = check(bootstrap);
    CHECK(found.problem == HostProblem::other);
    CHECK_THAT(found.problem_text,
               Catch::StartsWith("4294967295 ranks need some 21474836475 open") &&
                   Catch::Contains("ulimit -n allows"));
}

}  // namespace dtrun
