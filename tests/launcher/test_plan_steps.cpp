// The five steps that make a job of what was asked for, each by itself.
#include "hostfiles/host_spec.h"
#include "launcher/plan/host_access.h"
#include "launcher/plan/host_offer.h"
#include "launcher/plan/job_placement.h"
#include "launcher/plan/programs.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dtrun {

using namespace plan;
namespace {

Options two_hosts() {
    Options options;
    options.hosts = "s1:2,s2:2";
    options.program = {"x"};
    return options;
}

/// "s1:2 s2:1": the ranks of each host.
std::string places_of(const Result<Placed>& placed) {
    if (!placed) return placed.error().message;
    std::vector<std::string> hosts;
    for (std::size_t i = 0; i < placed->placement.hosts.size(); ++i)
        hosts.push_back(fmt::format(
            "{}:{}", placed->placement.hosts[i].name,
            std::ranges::count(placed->placement.ranks, static_cast<int>(i), &RankPlace::host)));
    return fmt::format("{}", fmt::join(hosts, " "));
}

}  // namespace

TEST_CASE("hosts are offered by what names them first, and a rankfile is read with them",
          "[plan]") {
    Options options = two_hosts();
    const auto named = find_hosts(options, {});
    REQUIRE(named.has_value());
    CHECK(named->hosts[1].name == "s2");
    CHECK(named->sources.hosts == "-H");
    CHECK_FALSE(named->in_slurm());

    options.hosts.clear();
    const std::vector<std::string> slurm{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-3]"};
    const auto allocated = find_hosts(options, slurm);
    REQUIRE(allocated.has_value());
    CHECK(allocated->hosts.size() == 3);
    CHECK(allocated->used() == &*allocated->allocation);

    const TempDir dir;
    options.rankfile = dir.write("ranks", "rank 0=s2\nrank 1=s1\n");
    const auto by_file = find_hosts(options, {});
    REQUIRE(by_file.has_value());
    CHECK(by_file->hosts.empty());
    CHECK(by_file->ranks[0].host == "s2");
}

TEST_CASE("a place is chosen for each rank from what is offered, which stays as it is", "[plan]") {
    const Offer offer{.hosts = parse_hosts("s1:2,s2:2").value(), .sources = {"-H", "-H", ""}};
    Options options = two_hosts();
    CHECK(places_of(place_job(options, offer)) == "s1:2 s2:2");
    options.world_size = 3;
    const auto placed = place_job(options, offer);
    CHECK(places_of(placed) == "s1:2 s2:1");
    CHECK(placed->sources.world_size == "-np");
    CHECK(offer.sources.world_size.empty());

    options.rankfile = "ranks";
    options.world_size.reset();
    Offer ranks = offer;
    ranks.ranks = {{"s2", ""}, {"s1", "0-1"}};
    const auto by_file = place_job(options, ranks);
    CHECK(places_of(by_file) == "s1:1 s2:1");
    CHECK(by_file->placement.ranks[0].host == 1);
    CHECK(by_file->notes ==
          std::vector<std::string>{"ranks: slot=... has no effect: --bind-to says which processors "
                                   "ranks have"});
}

TEST_CASE("a host is reached by the transport that was asked for, else by the one that leads there",
          "[plan]") {
    const HostList hosts = parse_hosts("localhost,s2").value();
    AccessRules rules;
    const auto both = choose_access(rules, hosts);
    REQUIRE(both.has_value());
    CHECK((*both)[0].transport == Transport::local);
    CHECK((*both)[1].transport == Transport::ssh);
    CHECK((*both)[1].ssh->host == "s2");
    rules.asked = Transport::local;
    CHECK(choose_access(rules, hosts).error().message ==
          "--transport local: s2 is another machine");
    rules.only_here = true;
    CHECK(choose_access(rules, hosts)->back().transport == Transport::local);

    AccessRules slurm;
    slurm.allocation.emplace();
    slurm.allocation->scheduler = Scheduler::slurm;
    slurm.allocation->hosts = {hosts[1]};
    slurm.allocation->nodes = {{.cpus = 4, .gpus = 2}};
    const auto by_srun = choose_access(slurm, hosts);
    REQUIRE(by_srun.has_value());
    CHECK((*by_srun)[1].transport == Transport::slurm);
    CHECK((*by_srun)[1].node.gpus == 2);
}

TEST_CASE("what ranks inherit is fitted to their job, what the user asks for is not", "[plan]") {
    const std::vector<std::string> caller{"CUDA_VISIBLE_DEVICES=1", "PYTHONPATH=/a",
                                          "SLURM_CPUS_PER_TASK=4"};
    const auto value = [](const std::vector<Options::Variable>& variables, const char* name) {
        const auto found = std::ranges::find(variables, name, &Options::Variable::first);
        return found == variables.end() ? "-" : found->second;
    };
    const Surroundings job{.names_devices = true, .cpus_per_task = 2, .modules = "/w"};
    const auto inherited = plan_environment(caller, two_hosts(), job);
    REQUIRE(inherited.has_value());
    CHECK(value(inherited->local, "CUDA_VISIBLE_DEVICES") == "-");
    CHECK(value(inherited->remote, "PYTHONPATH") == "/w:/a");
    CHECK(value(inherited->local, "SLURM_CPUS_PER_TASK") == "2");
    CHECK(value(plan_environment({}, two_hosts(), job)->local, "PYTHONPATH") == "/w");
    CHECK(value(plan_environment({}, two_hosts(), job)->local, "SLURM_CPUS_PER_TASK") == "-");
    Options options = two_hosts();
    options.assignments = {{"CUDA_VISIBLE_DEVICES", "3"}, {"PYTHONPATH", ""}};
    const auto asked = plan_environment(caller, options, job);
    REQUIRE(asked.has_value());
    CHECK(value(asked->local, "CUDA_VISIBLE_DEVICES") == "3");
    CHECK(value(asked->local, "PYTHONPATH").empty());
}

TEST_CASE("each of several programs has its own ranks, variables and directory", "[plan]") {
    Options options;
    options.parts = {{.argv = {"a"}, .ranks = 2, .assignments = {{"K", "V"}}},
                     {.argv = {"b"}, .ranks = 1, .wdir = "sub"}};
    const auto programs = plan_programs(options, {}, "/w");
    REQUIRE(programs.has_value());
    CHECK((*programs)[0].ranks == 2);
    CHECK((*programs)[0].env == std::vector<Options::Variable>{{"K", "V"}});
    CHECK((*programs)[0].directory.empty());
    CHECK((*programs)[1].directory == "/w/sub");
    CHECK_FALSE(plan_programs(options, {}, "").has_value());
}

}  // namespace dtrun
