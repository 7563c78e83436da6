// What a head knows of the hosts of its job.
#include "launcher/head/hosts.h"
#include "tests/support/catch.h"

namespace dtrun::head {
namespace {

plan::JobSpec three_nodes() {
    plan::Options options;
    options.program = {"x"};
    const std::vector<std::string> caller{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-3]",
                                          "SLURM_NTASKS=3", "SLURM_TASKS_PER_NODE=1(x3)"};
    return plan::make_job_spec(std::move(options), caller, "/").value();
}

Join join_of(std::vector<std::string> addresses, std::string machine) {
    Join join;
    join.addresses = std::move(addresses);
    join.machine = std::move(machine);
    return join;
}

}  // namespace

TEST_CASE("hosts are found by their names, and those that have joined by their addresses",
          "[launcher]") {
    const plan::JobSpec spec = three_nodes();
    Hosts hosts(spec);
    CHECK(hosts.named("n3") == HostId{2});
    CHECK(hosts.named("n4") == std::nullopt);
    CHECK(hosts.at("10.0.0.2") == std::nullopt);
    hosts.joined(HostId{2}, "10.0.0.3", join_of({"10.0.0.3", "172.17.0.1"}, "c"));
    hosts.joined(HostId{1}, "10.0.0.2", join_of({"192.168.0.2", "172.17.0.1"}, "b"));
    CHECK(hosts.at("10.0.0.2") == HostId{1});
    CHECK(hosts.at("192.168.0.2") == HostId{1});
    CHECK(hosts.at("172.17.0.1") == HostId{1});  // the first that has it
    hosts.forget(HostId{1});
    CHECK(hosts.at("10.0.0.2") == std::nullopt);
    CHECK(hosts.at("172.17.0.1") == HostId{2});
    CHECK_FALSE(hosts[HostId{1}].joined);
    CHECK(hosts[HostId{2}].joined);
}

}  // namespace dtrun::head
