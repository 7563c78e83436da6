// What a head knows of the hosts of its job, and of its connections to them.
#include "launcher/head/hosts.h"
#include "launcher/head/sessions.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

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

TEST_CASE("a connection that has ended takes no memory once no host counts on it", "[launcher]") {
    const plan::JobSpec spec = three_nodes();
    Hosts hosts(spec);
    asio::io_context io;
    AgentRouter router;
    router.connections.on<Join>([&hosts](AgentSession& agent, const Join& join) -> Result<void> {
        agent.set_host(join.host);
        hosts[join.host].session = &agent;
        return {};
    });
    std::unique_ptr<Sessions> sessions;
    const bool forgotten = GENERATE(true, false);
    const auto closed = [&](AgentSession& agent, const Error&) {
        if (forgotten) hosts.forget(*agent.host());
        sessions->close(agent);
    };
    sessions = std::make_unique<Sessions>(io.get_executor(), router, hosts, closed);
    auto [here, there] = socket_pair(io);
    sessions->admit(Connection{std::move(here), std::nullopt}, nullptr);
    Join join;
    join.host = HostId{1};
    const Bytes frame = encode(join);
    asio::write(there, asio::buffer(frame));
    REQUIRE(runs_until(io, [&] { return hosts[HostId{1}].session != nullptr; }));
    hosts.joined(HostId{1}, "10.0.0.2", join_of({"10.0.0.2", "172.17.0.1"}, "b"));
    hosts.joined(HostId{2}, "10.0.0.3", join_of({"10.0.0.3", "172.17.0.2"}, "c"));
    CHECK(hosts.is_used("172.17.0.1"));
    CHECK_FALSE(hosts.is_used("172.17.0.2"));  // of one that is not connected
    CHECK(sessions->size() == 1);
    CHECK(hosts.is_known(*hosts[HostId{1}].session));
    there.close();
    settle(io, std::chrono::milliseconds(100));
    CHECK(sessions->size() == (forgotten ? 0 : 1));
    run_to_end(io, [](Sessions& all) -> asio::awaitable<int> {
        co_await all.join();
        co_return 0;
    }(*sessions));
}

}  // namespace dtrun::head
