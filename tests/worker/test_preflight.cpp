#include "rendezvous/wire/start_messages.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/agent/preflight.h"

namespace dtrun {

using namespace agent;
namespace {

Preflight check(const AgentConfig& config, std::vector<std::string> host_env = {"HOME=/"}) {
    std::vector<char*> env;
    for (std::string& entry : host_env) env.push_back(entry.data());
    env.push_back(nullptr);
    return check_host(config, env.data());
}

}  // namespace

TEST_CASE("what the caller sends wins over the host's own environment", "[preflight]") {
    AgentConfig config;
    config.argv = {"true"};
    config.env = {{"PATH", "/bin"}, {"A", "caller"}};
    const Preflight found = check(config, {"HOME=/", "A=host", "B=host", "_=/bin/sh", "SHLVL=3"});
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
    AgentConfig config;
    config.argv = {"/bin/true"};
    config.env = {{"SLURM_NTASKS", "8"}};
    const std::vector<std::string> host{
        "HOME=/",     "SLURM_STEP_ID=3",    "SLURM_NTASKS=2",
        "PMI_RANK=1", "SLURM_JOB_GPUS=0,1", "CUDA_VISIBLE_DEVICES=0,1"};
    CHECK(check(config, host).env.contains("SLURM_STEP_ID"));  // it is no scheduler's agent
    config.nodes = {"s1", "s2"};
    const Preflight found = check(config, host);
    CHECK_FALSE(found.env.contains("SLURM_STEP_ID"));
    CHECK_FALSE(found.env.contains("PMI_RANK"));
    CHECK(found.env.at("SLURM_NTASKS") == "8");
    CHECK(found.env.at("SLURM_JOB_GPUS") == "0,1");
    CHECK(found.env.at("CUDA_VISIBLE_DEVICES") == "0,1");
}

TEST_CASE("of several programs a host looks for those that its ranks run", "[preflight]") {
    AgentConfig config;
    config.host = HostId{1};
    config.argv = {"/no/such/program"};
    config.programs = {{{"/no/such/program"}, {}, "", 2, {HostId{0}}},
                       {{"true"}, {{"PATH", "/bin"}}, "/tmp", 1, {HostId{0}, HostId{1}}},
                       {{"/bin/false"}, {}, "", 1, {HostId{1}}}};
    const Preflight found = check(config);
    CHECK(found.problem == HostProblem::none);
    CHECK(found.program.empty());
    REQUIRE(found.programs.size() == 3);
    CHECK(found.programs[0].path.empty());
    CHECK(found.programs[1].path == "/bin/true");
    CHECK(found.programs[1].directory == "/tmp");
    CHECK(found.programs[2].path == "/bin/false");
    CHECK(found.programs[2].directory == found.directory);
    CHECK(program_of(config.programs, Rank{1}) == 0);
    CHECK(program_of(config.programs, Rank{2}) == 1);
    CHECK(program_of(config.programs, Rank{3}) == 2);
    config.programs[1].directory = "/no/such/directory";
    CHECK(check(config).problem == HostProblem::directory_missing);
    config.programs[1].directory.clear();
    config.programs[2].argv = {"/no/such"};
    CHECK(check(config).problem == HostProblem::program_missing);
}

TEST_CASE("a directory that is missing is home, or an error when it was asked for", "[preflight]") {
    const TempDir home;
    AgentConfig config;
    config.argv = {"/bin/true"};
    config.directory = "/no/such/directory";
    CHECK(check(config, {"HOME=" + home.path()}).directory == home.path());
    config.directory_required = true;
    const Preflight found = check(config);
    CHECK(found.problem == HostProblem::directory_missing);
    CHECK(found.problem_text == "/no/such/directory: No such file or directory (--wdir)");
}

TEST_CASE("a program that is missing or not executable is a problem of the host", "[preflight]") {
    const TempDir dir;
    AgentConfig config;
    config.argv = {dir.write("data", "")};
    CHECK(check(config).problem == HostProblem::not_executable);
    config.argv = {"no-such-program"};
    CHECK(check(config).problem == HostProblem::program_missing);
}

TEST_CASE("of the interfaces asked for the first that is there is taken", "[preflight]") {
    AgentConfig config;
    config.argv = {"/bin/true"};
    config.network_interfaces = {"ib7", "lo"};
    CHECK(check(config).interface == "lo");
    config.network_interfaces = {"ib7"};
    const Preflight found = check(config);
    CHECK(found.problem == HostProblem::other);
    CHECK(
        found.problem_text.starts_with("no network interface ib7 (--network-interfaces); it has "));
}

TEST_CASE("more ranks than a host can open files for are a problem of the host", "[preflight]") {
    AgentConfig config;
    config.argv = {"/bin/true"};
    config.binding.ranks = {4};
    CHECK(check(config).problem == HostProblem::none);
    config.binding.ranks = {UINT32_MAX};
    const Preflight found = check(config);
    CHECK(found.problem == HostProblem::other);
    CHECK_THAT(found.problem_text,
               Catch::StartsWith("4294967295 ranks need some 21474836475 open") &&
                   Catch::Contains("ulimit -n allows"));
}

}  // namespace dtrun
