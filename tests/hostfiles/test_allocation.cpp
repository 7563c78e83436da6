#include "base/fd.h"
#include "base/strings.h"
#include "hostfiles/allocation.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"

#include <filesystem>
#include <fstream>
#include <map>

using namespace dtrun;
using Catch::Contains;
using Variables = std::map<std::string, std::string, std::less<>>;

namespace {

const std::string kData = DTRUN_TEST_DATA "/slurm/";

/// An environment, the files that it names, and what `flux hostlist local` says.
struct World {
    Variables variables;
    Variables files;
    std::optional<std::string> flux;

    AllocationInput input() const {
        AllocationInput input;
        input.variable = [this](std::string_view name) -> std::optional<std::string_view> {
            const auto found = variables.find(name);
            if (found == variables.end()) return std::nullopt;
            return found->second;
        };
        input.file = [this](const std::string& path) -> Result<std::string> {
            const auto found = files.find(path);
            if (found == files.end()) return fail(Errc::not_found, "{}: no such file", path);
            return found->second;
        };
        if (flux)
            input.command = [this](const std::vector<std::string>& words) -> Result<std::string> {
                CHECK(fmt::format("{}", fmt::join(words, " ")) == "flux hostlist local");
                return *flux;
            };
        return input;
    }
};

/// The allocation, which must be there.
Allocation found_in(const World& world) {
    auto found = find_allocation(world.input());
    INFO((found ? "no error" : found.error().message));
    REQUIRE(found.has_value());
    REQUIRE(found->has_value());
    CHECK((*found)->nodes.size() == (*found)->hosts.size());
    return std::move(**found);
}

std::string refused(const World& world) {
    const auto found = find_allocation(world.input());
    return found ? "no error" : found.error().message;
}

/// "n1:4/8, n2:4 of 8".
std::string summary(const Allocation& allocation) {
    return fmt::format("{} of {}", show(Result<HostList>(allocation.hosts)), allocation.world_size);
}

World captured(const std::string& name) {
    World world;
    const auto text = read_file(kData + name + ".env");
    REQUIRE(text.has_value());
    for (const std::string_view line : split(*text, '\n')) {
        const std::size_t equals = line.find('=');
        if (equals != std::string_view::npos)
            world.variables.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
    return world;
}

World slurm(Variables variables) {
    variables.emplace("SLURM_JOB_ID", "7");
    return {std::move(variables), {}, {}};
}

/// A Slurm job of four nodes, with more or other variables.
World four_nodes(Variables variables) {
    variables.emplace("SLURM_JOB_NODELIST", "n[1-4]");
    return slurm(std::move(variables));
}

std::string of_each(const Allocation& allocation, int Allocation::Node::*member) {
    std::vector<int> values;
    for (const Allocation::Node& node : allocation.nodes) values.push_back(node.*member);
    return fmt::format("{}", fmt::join(values, ","));
}

}  // namespace

TEST_CASE("no scheduler means no allocation", "[hostfiles][allocation]") {
    const auto found =
        find_allocation(World{{{"HOME", "/root"}, {"SLURM_JOB_ID", ""}}, {}, {}}.input());
    REQUIRE(found.has_value());
    CHECK_FALSE(found->has_value());
}

TEST_CASE("an allocation has the hosts and slots that srun really used",
          "[hostfiles][allocation]") {
    int families = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kData)) {
        const std::string suffix = ".expected_hostfile";
        const std::string file = entry.path().filename().string();
        if (!file.ends_with(suffix)) continue;
        const std::string name = file.substr(0, file.size() - suffix.size());
        if (!std::filesystem::exists(kData + name + ".env")) continue;
        INFO(name);
        std::string lines;
        const Allocation allocation = found_in(captured(name));
        for (const Host& host : allocation.hosts)
            lines += fmt::format("{} slots={}\n", host.name, host.slots);
        // srun starts one task per node when nobody said how many; dtrun one for each GPU.
        const std::string expected = name == "sbatch_exclusive_gpu"
                                         ? "n1 slots=2\nn2 slots=2\n"
                                         : read_file(entry.path()).value();
        CHECK(lines == expected);
        CHECK_FALSE(allocation.is_bystander);
        ++families;
    }
    CHECK(families > 20);
}

TEST_CASE("captured jobs tell sizes, room, CPUs and GPUs", "[hostfiles][allocation]") {
    const auto [name, expected, cpus, gpus, cpus_per_rank] =
        GENERATE(table<std::string, std::string, std::string, std::string, int>({
            {"sbatch_N4_n10", "n1:4, n2:4, n3:1, n4:1 of 10", "4,4,1,1", "0,0,0,0", 0},
            {"sbatch_cpt2", "n1:2, n2:2, n3:1 of 5", "4,4,2", "0,0,0", 2},
            {"sbatch_exclusive", "n1:1/4, n2:1/8, n3:1/2, n4:1/8 of 4", "4,8,2,8", "0,0,0,0", 0},
            {"sbatch_exclusive_gpu", "n1:2/4, n2:2/8 of 4", "4,8", "2,2", 0},
            {"sbatch_gpus_per_node", "n1:2, n2:2, n4:2 of 6", "2,2,2", "2,2,2", 0},
            {"sbatch_N4_only", "n1:1, n2:1, n3:1, n4:1 of 4", "1,1,1,1", "0,0,0,0", 0},
            {"salloc_N2_n3", "n1:2, n2:1 of 3", "2,1", "0,0", 0},
        }));
    INFO(name);
    const Allocation allocation = found_in(captured(name));
    CHECK(allocation.scheduler == Scheduler::slurm);
    CHECK(summary(allocation) == expected);
    CHECK(of_each(allocation, &Allocation::Node::cpus) == cpus);
    CHECK(of_each(allocation, &Allocation::Node::gpus) == gpus);
    CHECK(allocation.cpus_per_rank == cpus_per_rank);
}

TEST_CASE("every number of an allocation has a source", "[hostfiles][allocation]") {
    const Allocation given = found_in(captured("sbatch_N4_n10"));
    CHECK(given.job == "2");
    CHECK(given.hosts_source == "SLURM_JOB_NODELIST=n[1-4]");
    CHECK(given.slots_source == "SLURM_TASKS_PER_NODE=4(x2),1(x2)");
    CHECK(given.world_size_source == "SLURM_NTASKS=10");
    const Allocation implied = found_in(captured("sbatch_N4_only"));
    CHECK(implied.slots_source == "one rank on each node, as srun has it");
    CHECK(implied.world_size_source == implied.slots_source);
    CHECK(found_in(captured("sbatch_exclusive_gpu")).slots_source == "SLURM_GPUS_PER_NODE=2");
}

TEST_CASE("only the first task of a step launches", "[hostfiles][allocation]") {
    const auto [name, expected, bystander] = GENERATE(table<std::string, std::string, bool>({
        {"sbatch_N4_n10.rank0", "n1:4, n2:4, n3:1, n4:1 of 10", false},
        {"sbatch_N4_n10.rank3", "n1:4, n2:4, n3:1, n4:1 of 10", true},
        {"salloc_N2_n3.rank2", "n1:2, n2:1 of 3", true},
        {"srun_direct_N4_n10.rank0", "n1:4, n2:4, n3:1, n4:1 of 10", false},
        // A place to launch from, and not a rank, though it has a step and a rank of its own.
        {"salloc_interactive_step", "n1:2, n2:1 of 3", false},
    }));
    INFO(name);
    const Allocation allocation = found_in(captured(name));
    CHECK(summary(allocation) == expected);
    CHECK(allocation.is_bystander == bystander);
}

TEST_CASE("a step on some nodes is an allocation of these", "[hostfiles][allocation]") {
    World world = captured("sbatch_N4_n10.rank3");
    world.variables["SLURM_STEP_NODELIST"] = "n[2,4]";
    world.variables["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)";
    world.variables["SLURM_STEP_NUM_TASKS"] = "2";
    world.variables["SLURM_PROCID"] = "1";
    const Allocation allocation = found_in(world);
    CHECK(summary(allocation) == "n2:1, n4:1 of 2");
    CHECK(of_each(allocation, &Allocation::Node::cpus) == "4,1");
    CHECK(allocation.is_bystander);
    CHECK(allocation.hosts_source == "SLURM_STEP_NODELIST=n[2,4]");
}

TEST_CASE("a job that says no number of tasks has one for each GPU, or for each node",
          "[hostfiles][allocation][slurm]") {
    const auto [variables, expected] = GENERATE(table<Variables, std::string>({
        {Variables(), "n1:1, n2:1, n3:1, n4:1 of 4"},
        {{{"SLURM_NTASKS_PER_NODE", "3"}}, "n1:3, n2:3, n3:3, n4:3 of 12"},
        {{{"SLURM_GPUS_PER_NODE", "a100:2,v100:1"}}, "n1:3, n2:3, n3:3, n4:3 of 12"},
        {{{"SLURM_GPUS_PER_NODE", "0"}}, "n1:1, n2:1, n3:1, n4:1 of 4"},
        {{{"SLURM_NTASKS_PER_NODE", "2"}, {"SLURM_GPUS_PER_NODE", "4"}},
         "n1:2, n2:2, n3:2, n4:2 of 8"},
        {{{"SLURM_GPUS_ON_NODE", "4"}}, "n1:1, n2:1, n3:1, n4:1 of 4"},  // of one of the nodes
        {{{"SLURM_GPUS_ON_NODE", "4"}, {"SLURM_JOB_NODELIST", "n7"}}, "n7:4 of 4"},
        {{{"SLURM_JOB_CPUS_PER_NODE", "8(x2),1,2"}}, "n1:1/8, n2:1/8, n3:1, n4:1/2 of 4"},
        {{{"SLURM_TASKS_PER_NODE", "4(x3),1"}, {"SLURM_JOB_CPUS_PER_NODE", "9(x4)"}},
         "n1:1/4, n2:1/4, n3:1/4, n4:1 of 4"},
    }));
    CHECK(summary(found_in(four_nodes(variables))) == expected);
}

TEST_CASE("old names of Slurm's variables work", "[hostfiles][allocation][slurm]") {
    const World world{{{"SLURM_JOBID", "9"},
                       {"SLURM_NODELIST", "n[1-2]"},
                       {"SLURM_NPROCS", "3"},
                       {"SLURM_TASKS_PER_NODE", "2,1"}},
                      {},
                      {}};
    const Allocation allocation = found_in(world);
    CHECK(summary(allocation) == "n1:2, n2:1 of 3");
    CHECK(allocation.job == "9");
    CHECK(allocation.world_size_source == "SLURM_NPROCS=3");
}

TEST_CASE("an arbitrary distribution is counted from its file", "[hostfiles][allocation][slurm]") {
    World world = four_nodes({{"SLURM_NTASKS", "5"}, {"SLURM_HOSTFILE", "/hf"}});
    world.files["/hf"] = "n2\nn1\n n2, n4 # last\nn2\n";
    CHECK(summary(found_in(world)) == "n2:3, n1:1, n4:1 of 5");
    world.files["/hf"] = "n3*4\nn1\n";
    CHECK(summary(found_in(world)) == "n3:4, n1:1 of 5");
    world.files["/hf"] = "n3*x\n";
    CHECK_THAT(refused(world), Catch::StartsWith("/hf:1:4: 'x' is not a number of slots"));
    world.files.clear();
    CHECK_THAT(refused(world), Contains("SLURM_HOSTFILE=/hf") && Contains("/hf: no such file"));
}

TEST_CASE("tasks without counts are spread over the nodes", "[hostfiles][allocation][slurm]") {
    CHECK(summary(found_in(four_nodes({{"SLURM_NTASKS", "10"}}))) ==
          "n1:3, n2:3, n3:2, n4:2 of 10");
}

TEST_CASE("GPUs of a node come from the first variable that tells them",
          "[hostfiles][allocation][slurm]") {
    const auto [variables, expected] = GENERATE(table<Variables, std::string>({
        {{{"SLURM_GPUS_PER_NODE", "h100:8"}, {"SLURM_GPUS_PER_TASK", "1"}}, "8,8,8,8"},
        {{{"SLURM_NTASKS", "5"}, {"SLURM_TASKS_PER_NODE", "2,1(x3)"}, {"SLURM_GPUS_PER_TASK", "2"}},
         "4,2,2,2"},
        {{{"SLURM_GPUS_ON_NODE", "2"}}, "0,0,0,0"},
    }));
    CHECK(of_each(found_in(four_nodes(variables)), &Allocation::Node::gpus) == expected);
}

TEST_CASE("a heterogeneous job is one allocation", "[hostfiles][allocation][slurm]") {
    World world = slurm({{"SLURM_HET_SIZE", "2"},
                         {"SLURM_JOB_NODELIST", "n3"},
                         {"SLURM_JOB_NODELIST_HET_GROUP_0", "n3"},
                         {"SLURM_NTASKS_HET_GROUP_0", "1"},
                         {"SLURM_TASKS_PER_NODE_HET_GROUP_0", "1"},
                         {"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0", "2"},
                         {"SLURM_CPUS_PER_TASK_HET_GROUP_0", "2"},
                         {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[1-2]"},
                         {"SLURM_NTASKS_HET_GROUP_1", "4"},
                         {"SLURM_TASKS_PER_NODE_HET_GROUP_1", "3,1"},
                         {"SLURM_GPUS_PER_NODE_HET_GROUP_1", "4"}});
    const Allocation allocation = found_in(world);
    CHECK(summary(allocation) == "n3:1, n1:3, n2:1 of 5");
    CHECK(of_each(allocation, &Allocation::Node::het_group) == "0,1,1");
    CHECK(of_each(allocation, &Allocation::Node::gpus) == "0,4,4");
    CHECK(allocation.cpus_per_rank == 0);  // they differ
    CHECK(allocation.hosts_source ==
          "SLURM_JOB_NODELIST_HET_GROUP_0=n3 and SLURM_JOB_NODELIST_HET_GROUP_1=n[1-2]");

    world.variables["SLURM_JOB_NODELIST_HET_GROUP_1"] = "n[2-3]";  // two components share n3
    const Allocation shared = found_in(world);
    CHECK(summary(shared) == "n3:2, n2:3 of 5");
    CHECK(of_each(shared, &Allocation::Node::het_group) == "0,1");

    world.variables.erase("SLURM_JOB_NODELIST_HET_GROUP_1");
    CHECK_THAT(refused(world), Catch::StartsWith("SLURM_JOB_NODELIST_HET_GROUP_1: not set"));
}

TEST_CASE("captured heterogeneous and arbitrary jobs are read as srun ran them",
          "[hostfiles][allocation][slurm]") {
    const Allocation job = found_in(captured("salloc_het"));
    CHECK(summary(job) == "n3:1, n1:3, n2:1 of 5");
    CHECK(of_each(job, &Allocation::Node::het_group) == "0,1,1");
    CHECK(of_each(job, &Allocation::Node::cpus) == "2,3,1");
    const Allocation step = found_in(captured("salloc_het.rank1"));  // srun --het-group=0,1
    CHECK(summary(step) == "n1:3, n2:1, n3:1 of 5");
    CHECK(step.is_bystander);
    World arbitrary = captured("sbatch_arbitrary");
    arbitrary.files["/tmp/hs/hf"] = "n2\nn1\nn2\nn3\nn2\n";
    CHECK(summary(found_in(arbitrary)) == "n2:3, n1:1, n3:1 of 5");
}

TEST_CASE("a Slurm job that contradicts itself is refused with the variable's place",
          "[hostfiles][allocation][slurm]") {
    const auto [variables, expected] = GENERATE(table<Variables, std::string>({
        {{{"SLURM_JOB_NODELIST", "n[3-1]"}}, "SLURM_JOB_NODELIST:1:3: range 3-1 runs backwards"},
        {{{"SLURM_NTASKS", "x"}}, "SLURM_NTASKS:1:1: 'x' is not a whole number from 1 to 16777216"},
        {{{"SLURM_NTASKS", "99999999999"}}, "SLURM_NTASKS:1:1: '99999999999' is not"},
        {{{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "1(x3)"}},
         "SLURM_TASKS_PER_NODE:1:6: counts for 3 nodes, but there are 4"},
        {{{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "1,1(x999999)"}},
         "SLURM_TASKS_PER_NODE:1:3: counts for more than the 4 nodes"},
        {{{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "1,1(y3)"}},
         "SLURM_TASKS_PER_NODE:1:3: '1(y3)' is not a count"},
        {{{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "1(x4"}},
         "SLURM_TASKS_PER_NODE:1:1: '1(x4' is not a count"},
        {{{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "0(x4)"}},
         "SLURM_JOB_ID:1:1: no host has a slot"},
        {{{"SLURM_JOB_CPUS_PER_NODE", "1,2"}},
         "SLURM_JOB_CPUS_PER_NODE:1:4: counts for 2 nodes, but there are 4"},
        {{{"SLURM_GPUS_PER_NODE", "a100:2,x"}},
         "SLURM_GPUS_PER_NODE:1:8: 'x' is not a number of GPUs"},
        {{{"SLURM_NTASKS_PER_NODE", "0"}}, "SLURM_NTASKS_PER_NODE:1:1: '0' is not"},
        {{{"SLURM_STEP_ID", "batch"}}, "SLURM_STEP_ID:1:1: 'batch' is not"},
        {{{"SLURM_HET_SIZE", "1000"}}, "SLURM_HET_SIZE:1:1: '1000' is not"},
        {{{"SLURM_JOB_NODELIST", "n[1-1000000]"}, {"SLURM_NTASKS_PER_NODE", "17"}},
         "SLURM_NTASKS_PER_NODE=17: 17000000 ranks are too many"},
        {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_NTASKS", "70000"}},
         "SLURM_NTASKS:1:1: 70000 ranks on 1 hosts are too many"},
    }));
    CHECK_THAT(refused(four_nodes(variables)), Catch::StartsWith(expected));
    CHECK_THAT(refused(slurm({})), Catch::StartsWith("SLURM_JOB_NODELIST: not set"));
}

TEST_CASE("other batch systems list a host for each slot, or count them",
          "[hostfiles][allocation]") {
    const auto [variables, file, expected, scheduler] =
        GENERATE(table<Variables, std::string, std::string, Scheduler>({
            {{{"PBS_JOBID", "12.head"}, {"PBS_NODEFILE", "/f"}},
             "b2\nb2\nb1\nb2\n",
             "b2:3, b1:1 of 4",
             Scheduler::pbs},
            {{{"LSB_JOBID", "12"}, {"LSB_DJOB_HOSTFILE", "/f"}, {"LSB_MCPU_HOSTS", "x 1"}},
             "h1\nh1\nh2",
             "h1:2, h2:1 of 3",
             Scheduler::lsf},
            {{{"LSB_JOBID", "12"}, {"LSB_MCPU_HOSTS", "h1 4 h2 2"}},
             "",
             "h1:4, h2:2 of 6",
             Scheduler::lsf},
            {{{"JOB_ID", "12"}, {"PE_HOSTFILE", "/f"}},
             "c1 4 all.q@c1 UNDEFINED\nc2.local 2 all.q@c2 <NULL>\n",
             "c1:4, c2.local:2 of 6",
             Scheduler::sge},
            {{{"OAR_JOB_ID", "12"}, {"OAR_NODEFILE", "/f"}},
             "g-1.site.fr\ng-1.site.fr\n\n",
             "g-1.site.fr:2 of 2",
             Scheduler::oar},
            {{{"COBALT_JOBID", "12"}, {"COBALT_NODEFILE", "/f"}},
             "nid00012\nnid00013\n",
             "nid00012:1, nid00013:1 of 2",
             Scheduler::cobalt},
            {{{"COBALT_JOBID", "12"}, {"COBALT_PARTNAME", "9-11,20"}},
             "",
             "nid00009:1, nid00010:1, nid00011:1, nid00020:1 of 4",
             Scheduler::cobalt},
        }));
    const Allocation allocation = found_in({variables, {{"/f", file}}, {}});
    INFO(scheduler_name(scheduler));
    CHECK(allocation.scheduler == scheduler);
    CHECK(summary(allocation) == expected);
    CHECK_THAT(allocation.job, Catch::StartsWith("12"));
    CHECK_FALSE(allocation.hosts_source.empty());
    CHECK_FALSE(allocation.slots_source.empty());
    CHECK_FALSE(allocation.world_size_source.empty());
}

TEST_CASE("what other batch systems say wrong is named with its place", "[hostfiles][allocation]") {
    const auto [variables, file, expected] = GENERATE(table<Variables, std::string, std::string>({
        {{{"PBS_NODEFILE", "/f"}}, "a\nb/0\n", "/f:2:2: '/' cannot stand in a host name"},
        {{{"PBS_NODEFILE", "/f"}}, "\n", "/f:1:1: no hosts in the file; name them with -H"},
        {{{"PE_HOSTFILE", "/f"}}, "a 4\nb x\n", "/f:2:3: 'x' is not a number of slots"},
        {{{"PE_HOSTFILE", "/f"}}, "a", "/f:1:2: the number of slots is missing"},
        {{{"LSB_JOBID", "1"}}, "", "LSB_JOBID:1:1: an LSF job, but neither"},
        {{{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "h1 4 h2"}},
         "",
         "LSB_MCPU_HOSTS:1:8: the number of slots is missing"},
        {{{"COBALT_JOBID", "1"}, {"COBALT_PARTNAME", "1,MIR-0"}},
         "",
         "COBALT_PARTNAME:1:3: 'MIR-0' is not a node number"},
        {{{"OAR_NODEFILE", "/gone"}},
         "",
         "OAR_NODEFILE=/gone (correct it, or name the hosts with "
         "-H): /gone: no such file"},
    }));
    CHECK_THAT(refused({variables, {{"/f", file}}, {}}), Catch::StartsWith(expected));
}

TEST_CASE("Flux is asked for its hosts", "[hostfiles][allocation]") {
    World batch{{{"FLUX_URI", "local:///run/flux/local"}}, {}, "corona[82-83,9]\n"};
    CHECK(summary(found_in(batch)) == "corona82:1, corona83:1, corona9:1 of 3");
    batch.variables.insert(
        {{"FLUX_JOB_ID", "f1"}, {"FLUX_JOB_SIZE", "7"}, {"FLUX_TASK_RANK", "2"}});
    const Allocation task = found_in(batch);
    CHECK(summary(task) == "corona82:3, corona83:2, corona9:2 of 7");
    CHECK(task.is_bystander);
    CHECK(task.job == "f1");
    batch.flux = "corona[";
    CHECK_THAT(refused(batch), Catch::StartsWith("flux hostlist local:1:7: '[' is not closed"));
    batch.flux.reset();  // nobody to ask
    CHECK_FALSE(find_allocation(batch.input()).value().has_value());
}

TEST_CASE("Slurm is looked for before the others", "[hostfiles][allocation]") {
    World world = captured("sbatch_N4_n10");
    world.variables["PBS_NODEFILE"] = "/gone";
    world.variables["FLUX_URI"] = "local:///gone";
    CHECK(found_in(world).scheduler == Scheduler::slurm);
}

TEST_CASE("docs/HOSTS.md has the batch systems of schedulers.def, in their order",
          "[hostfiles][allocation]") {
    std::ifstream file(DTRUN_HOSTS_MD);
    std::string documented;
    bool in_table = false;
    for (std::string line; std::getline(file, line);) {
        if (in_table && line.starts_with("| "))
            documented += line.substr(2, line.find_first_of(" ,", 2) - 2) + " ";
        in_table = line.starts_with("| batch system |") || (in_table && line.starts_with("|"));
    }
#define DTRUN_SCHEDULER(name, shown, files, more) shown " "
    constexpr std::string_view kListed =
#include "hostfiles/schedulers.def"
        ;
    CHECK(documented == kListed);
    CHECK(scheduler_names() == "Slurm, Flux, PBS, LSF, SGE, OAR or Cobalt");
    CHECK(words_for_more(Scheduler::pbs, 4, 8) == "ask for mpiprocs=4 in each chunk");
    CHECK(words_for_more(Scheduler::lsf, 4, 8) == "ask for -n 8");
}
