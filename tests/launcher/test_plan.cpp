#include "launcher/commands/print_plan.h"

#include "base/interfaces.h"
#include "base/utf8.h"
#include "launcher/plan/one_machine.h"
#include "launcher/transport/host_target.h"
#include "rendezvous/wire/modes.h"
#include "tests/support/catch.h"

#include <filesystem>

namespace dtrun {

using namespace plan;

using namespace commands;
namespace {

Result<JobSpec> spec_of(const std::string& hosts,
                        std::vector<std::string> program = {"python", "a b.py"}) {
    Options options;
    options.hosts = hosts;
    options.program = std::move(program);
    return make_job_spec(std::move(options), {}, "/work");
}

}  // namespace

TEST_CASE("the plan shows every rank, the command and the directory", "[plan]") {
    const auto spec = spec_of("alice@gpu-1:2,localhost");
    REQUIRE(spec.has_value());
    CHECK(plan_text(*spec) ==
          "3 ranks on 2 hosts\n"
          "  rank  host       slot  local  cross  address    user   by\n"
          "     0  gpu-1         0    0/2    0/2  gpu-1      alice  ssh\n"
          "     1  gpu-1         1    1/2    0/1  gpu-1      alice  ssh\n"
          "     2  localhost     0    0/1    1/2  localhost  -      local\n"
          "hosts:      -H\n"
          "slots:      -H\n"
          "ranks:      every slot\n"
          "command:    python 'a b.py'\n"
          "directory:  /work (home on hosts that lack it)\n"
          "variables:  those of dtrun, torch, horovod, deepspeed, accelerate, lightning and mpi "
          "(dtrun help environment)\n");
}

TEST_CASE("with --encrypt torch's ranks do not speak over the network", "[plan]") {
    const auto store_of = [](const std::string& hosts, bool encrypt,
                             std::optional<TorchStore> given = {}) {
        Options options;
        options.hosts = hosts;
        options.program = {"train"};
        options.encrypt = encrypt;
        options.store_given = given;
        options.torch_store = given.value_or(TorchStore::agent);
        return make_job_spec(std::move(options), {}, "/work")->options.torch_store;
    };
    CHECK(store_of("gpu-1,gpu-2", true) == TorchStore::proxy);
    CHECK(store_of("gpu-1,gpu-2", false) == TorchStore::agent);
    CHECK(store_of("gpu-1:2", true) == TorchStore::agent);
    CHECK(store_of("gpu-1,gpu-2", true, TorchStore::agent) == TorchStore::agent);
    CHECK(store_of("gpu-1,gpu-2", true, TorchStore::rank0) == TorchStore::rank0);
}

TEST_CASE("an elastic job that counts hosts has whole ones, all with the same number of ranks",
          "[plan][elastic]") {
    Options options;
    options.program = {"x"};
    options.hosts = "s1,s2,s3";
    options.shape.count = HostShape::Count::number;
    options.shape.number = 2;
    options.shape.hosts_min = 2;
    options.shape.hosts_max = 4;
    options.shape.hosts_flag = "--nnodes 2:4";
    options.shape.elastic = true;
    options.elastic.emplace();
    options.elastic->allowed = {2, 3, 4, 5, 8, 16};
    const auto spec = make_job_spec(options, {}, "/");
    REQUIRE(spec.has_value());
    const ElasticOptions& elastic = *spec->options.elastic;
    CHECK(elastic.ranks_per_host == 2);
    CHECK(elastic.ranks_min == 4);
    CHECK(elastic.ranks_max == 8);
    CHECK(elastic.allowed == std::vector{4, 8});
    options.elastic->allowed = {3, 5};
    CHECK(make_job_spec(options, {}, "/").error().message ==
          "--nnodes 2:4 hosts of 2 ranks have none of the numbers of ranks that are allowed: 3,5");
    options.elastic->allowed = {};
    options.shape.count = HostShape::Count::slots;
    options.hosts = "s1:2,s2:2,s3:3";
    CHECK(
        make_job_spec(options, {}, "/").error().message ==
        "--nnodes 2:4: all hosts of an elastic job have the same number of ranks, but s1 has 2 and "
        "s3 has 3; say how many each has");
}

TEST_CASE("the JSON plan has every rank with its sizes", "[plan]") {
    const auto spec = spec_of("gpu-1:1,gpu-2:1");
    REQUIRE(spec.has_value());
    const std::string json = plan_json(*spec);
    CHECK(json.starts_with(
        R"({"schema":1,"world_size":2,"command":["python","a b.py"],"directory":"/work",)"));
    CHECK_THAT(json, Catch::Contains(R"("contracts":["dtrun","torch",)"));
    CHECK_THAT(json, !Catch::Contains(R"("port")"));
    CHECK(
        json.find(R"({"rank":1,"host":"gpu-2","slot":0,"local_rank":0,"cross_rank":1,)"
                  R"("world_size":2,"local_size":1,"cross_size":2,"address":"gpu-2","user":""})") !=
        std::string::npos);
}

TEST_CASE("the JSON plan is UTF-8, whatever a folder or an argument is", "[plan]") {
    Options options;
    options.hosts = "localhost";
    options.program = {"x", "\xff"};
    const auto spec = make_job_spec(options, {}, "/\xe9");
    REQUIRE(spec.has_value());
    CHECK_THAT(plan_json(*spec), Catch::Contains("\"command\":[\"x\",\"\xef\xbf\xbd\"]"));
    CHECK(is_utf8(plan_json(*spec)));
}

TEST_CASE("the plan tells the values of variables only with --verbose", "[plan]") {
    Options options;
    options.hosts = "localhost";
    options.program = {"x"};
    options.assignments = {{"HF_TOKEN", "sesame"}};
    const auto spec = make_job_spec(options, {}, "/");
    REQUIRE(spec.has_value());
    CHECK(plan_text(*spec).ends_with("env added:  HF_TOKEN=...\n"));
    CHECK(plan_json(*spec).find(R"("environment":{"HF_TOKEN":null})") != std::string::npos);
    options.verbosity = log::Level::verbose;
    const auto verbose = make_job_spec(options, {}, "/");
    REQUIRE(verbose.has_value());
    CHECK(plan_text(*verbose).ends_with("env added:  HF_TOKEN=sesame\n"));
    CHECK(plan_json(*verbose).find(R"({"HF_TOKEN":"sesame"})") != std::string::npos);
}

TEST_CASE("Slurm's --overcommit lets hosts have more ranks than processors", "[plan][slurm]") {
    std::vector<std::string> caller{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]",
                                    "SLURM_JOB_CPUS_PER_NODE=4(x2)"};
    Options options;
    options.program = {"x"};
    options.world_size = 16;
    CHECK_THAT(make_job_spec(options, caller, "/").error().message,
               Catch::StartsWith("16 ranks, but Slurm gave this job 2 tasks and 8 processors"));
    caller.emplace_back("SLURM_OVERCOMMIT=1");
    const auto spec = make_job_spec(options, caller, "/");
    REQUIRE(spec.has_value());
    CHECK(spec->hosts[HostId{0}].ranks.size() == 8);
    CHECK(spec->hosts[HostId{1}].ranks.size() == 8);
}

TEST_CASE("what only ssh understands is refused with another --ssh-command", "[plan]") {
    const auto error_of = [](const std::string& command, const std::string& hosts, auto change) {
        Options options;
        options.hosts = hosts;
        options.program = {"x"};
        options.ssh_command = command;
        change(options);
        const auto spec = make_job_spec(std::move(options), {}, "/");
        return spec ? std::string() : spec.error().message;
    };
    const auto port = [](Options& options) { options.ssh_port = 2222; };
    const auto key = [](Options& options) { options.ssh_identity_file = "/dev/null"; };
    const auto new_keys = [](Options& options) { options.accept_new_host_keys = true; };
    CHECK(error_of("./kube.sh -n x", "pod-1", port) ==
          "--ssh-command: only ssh itself can be told of port 2222 (-p), which pod-1 is to have; "
          "write it into the command, in the way of ./kube.sh");
    CHECK_THAT(error_of("sshpass -e ssh", "pod-1", key), Catch::Contains("key /dev/null (-i)"));
    CHECK_THAT(error_of("kube.sh", "pod-1", new_keys), Catch::Contains("--accept-new-host-keys"));
    CHECK(error_of("/usr/bin/ssh -v", "pod-1", port) == "");
    CHECK(error_of("kube.sh", "localhost", port) == "");
    CHECK(error_of("kube.sh", "root@pod-1", [](Options&) {}) == "");
}

TEST_CASE("ranks that flags name must exist", "[plan]") {
    Options options;
    options.program = {"x"};
    options.world_size = 4;
    options.only_ranks = RankSet::parse("0,7").value();
    const auto spec = make_job_spec(options, {}, "/");
    REQUIRE_FALSE(spec.has_value());
    CHECK(spec.error().message == "--only-ranks: rank 7 does not exist, the ranks are 0..3");
}

TEST_CASE("this machine by two names is one machine, and refused unless ranks are to share it",
          "[plan]") {
    const auto verdict = [](const std::string& hosts, bool oversubscribe = false) {
        Options options;
        options.hosts = hosts;
        options.program = {"x"};
        options.oversubscribe = oversubscribe;
        const auto spec = make_job_spec(std::move(options), {}, "/");
        REQUIRE(spec.has_value());
        return check_one_machine(*spec);
    };
    CHECK(verdict("localhost:2,127.0.0.1:2").error().message ==
          "localhost and 127.0.0.1 are one machine: give it one name, with all its slots, or "
          "--oversubscribe if its ranks are to share devices and processors");
    CHECK_FALSE(verdict("gpu-1,LocalHost," + host_name()).has_value());
    CHECK(verdict("localhost:2,127.0.0.1:2", true).has_value());
    CHECK(verdict("localhost:2,gpu-1:2,me@localhost:2").has_value());  // somebody else's slots
}

TEST_CASE("a name that begins as this machine's does is looked up, no other is", "[plan]") {
    using transport::may_be_own_name;
    CHECK(may_be_own_name("head.cluster.local", "head"));
    CHECK(may_be_own_name("HEAD.Cluster.Local", "Head"));
    CHECK(may_be_own_name("head", "head.cluster.local"));
    CHECK(may_be_own_name("head-ib0", "head"));
    CHECK_FALSE(may_be_own_name("head2", "head"));
    CHECK_FALSE(may_be_own_name("gpu-02", "gpu-01"));
    CHECK_FALSE(may_be_own_name("s1", ""));
}

TEST_CASE("where Slurm's variables are, but not srun, this machine's ranks start here",
          "[plan][slurm]") {
    const std::vector<std::string> here{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=" + host_name(),
                                        "SLURM_JOB_CPUS_PER_NODE=8", "PATH=/nowhere"};
    Options options;
    options.program = {"x"};
    options.world_size = 2;
    const auto spec = make_job_spec(options, here, "/");
    REQUIRE(spec.has_value());
    CHECK(spec->hosts[HostId{0}].transport == Transport::local);
    const std::vector<std::string> two{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]",
                                       "SLURM_JOB_CPUS_PER_NODE=8(x2)", "PATH=/nowhere"};
    CHECK_THAT(make_job_spec(options, two, "/").error().message,
               Catch::StartsWith("n1 is a node of this Slurm allocation, but there is no srun") &&
                   Catch::Contains("--transport ssh") && Catch::Contains("dtrun join"));
    options.transport = Transport::slurm;
    CHECK(make_job_spec(options, here, "/").error().message ==
          "--transport slurm: there is no srun on PATH");
}

TEST_CASE("the directory is called as the caller's shell calls it, if that is the same one",
          "[plan]") {
    const std::string here = std::filesystem::current_path().string();
    const std::string by_proc = "/proc/self/cwd";  // another name of it
    CHECK(directory_here({{"PWD=" + by_proc}}) == by_proc);
    CHECK(directory_here({{std::string("PWD=/")}}) == here);
    CHECK(directory_here({{std::string("PWD=.")}}) == here);
    CHECK(directory_here({}) == here);
}

}  // namespace dtrun
