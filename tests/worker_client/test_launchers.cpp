#include "worker/client/connect/launchers.h"

#include "base/crypto.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/client/connect/daemon.h"

#include <fcntl.h>
#include <unistd.h>

namespace dtrun::embedded {
namespace {

/// rank, world size, local rank and size, cross rank and size, node rank and count.
using Numbers = std::vector<std::uint32_t>;
constexpr std::uint32_t kNone = DTRUN_UNKNOWN;

Numbers numbers(const RankInfo& info) {
    return {info.rank,       info.world_size, info.local_rank, info.local_size,
            info.cross_rank, info.cross_size, info.node_rank,  info.node_count};
}

std::string mistake(const Environment& environment) {
    const auto found = find_launcher(environment);
    return found ? "none" : found.error().text;
}

Environment with(Environment environment, const Environment& more) {
    for (const auto& [name, value] : more) environment[name] = value;
    return environment;
}

/// Rank 4 of `srun -N4 -n10` on nodes of 4, 8, 2 and 8 CPUs (Slurm 22.05).
const Environment kSlurm{{"SLURM_JOB_ID", "17"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "4"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "10"},
                         {"SLURM_NNODES", "4"},
                         {"SLURM_STEP_NUM_TASKS", "10"},
                         {"SLURM_STEP_NUM_NODES", "4"},
                         {"SLURM_STEP_TASKS_PER_NODE", "4(x2),1(x2)"},
                         {"SLURM_TASKS_PER_NODE", "4(x2),1(x2)"},
                         {"SLURMD_NODENAME", "n2"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_SIZE", "8"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "1"}};
const Environment kPmi{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kTorchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"GROUP_RANK", "1"},
                            {"GROUP_WORLD_SIZE", "2"},
                            {"TORCHELASTIC_RUN_ID", "run"},
                            {"TORCHELASTIC_RESTART_COUNT", "3"}};
const Environment kDaemon{
    {"DTRUN_SERVE", "head:29400"}, {"DTRUN_JOB_NAME", "job"}, {"DTRUN_SECRET_FILE", "/secret"}};

}  // namespace

TEST_CASE("each launcher's variables give the place that it means", "[client][launchers]") {
    struct Row {
        const char* name;
        Environment environment;
        Launcher launcher;
        Numbers info;
    };
    const Numbers alone{0, 1, 0, 1, 0, 1, 0, 1};
    const std::vector<Row> rows{
        {"nothing", {{"PATH", "/bin"}}, Launcher::none, alone},
        {"srun", kSlurm, Launcher::slurm, {4, 10, 0, 4, 1, 4, 1, 4}},
        {"srun, third on its node",
         with(kSlurm, {{"SLURM_PROCID", "6"}, {"SLURM_LOCALID", "2"}}),
         Launcher::slurm,
         {6, 10, 2, 4, 1, 2, 1, 4}},
        {"srun, last node",
         with(kSlurm, {{"SLURM_PROCID", "9"}, {"SLURM_NODEID", "3"}}),
         Launcher::slurm,
         {9, 10, 0, 1, 3, 4, 3, 4}},
        {"a batch script",
         {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}},
         Launcher::none,
         alone},
        {"salloc's interactive step",
         {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_PROCID", "0"}},
         Launcher::none,
         alone},
        {"mpirun on two nodes",
         kOpenMpi,
         Launcher::open_mpi,
         {5, 8, 1, 4, kNone, kNone, kNone, kNone}},
        {"mpirun on one node",
         with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "5"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}}),
         Launcher::open_mpi,
         {5, 8, 5, 8, 0, 1, 0, 1}},
        {"mpiexec", kPmi, Launcher::pmi, {1, 2, 1, 2, 0, 1, 0, 1}},
        {"mpiexec without local ranks",
         {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
         Launcher::pmi,
         {1, 2, kNone, kNone, kNone, kNone, kNone, kNone}},
        {"torchrun", kTorchrun, Launcher::torchrun, {5, 8, 1, 4, 1, 2, 1, 2}},
        {"torchrun, unequal nodes",
         with(kTorchrun, {{"LOCAL_WORLD_SIZE", "3"}}),
         Launcher::torchrun,
         {5, 8, 1, 3, kNone, kNone, 1, 2}},
        {"only RANK and WORLD_SIZE",
         {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
         Launcher::torchrun,
         {1, 2, kNone, kNone, kNone, kNone, kNone, kNone}},
        {"mpirun, whose daemons srun has started",
         with(kSlurm, kOpenMpi),
         Launcher::open_mpi,
         {5, 8, 1, 4, kNone, kNone, kNone, kNone}},
        {"torchrun in every task of a step",
         with(with(kSlurm, kTorchrun), {{"TORCHELASTIC_RUN_ID", "x"}}),
         Launcher::torchrun,
         {5, 8, 1, 4, 1, 2, 1, 2}},
        {"srun with PMI",
         with(kSlurm, {{"PMI_RANK", "4"}, {"PMI_SIZE", "10"}}),
         Launcher::slurm,
         {4, 10, 0, 4, 1, 4, 1, 4}},
        {"a daemon and srun", with(kSlurm, kDaemon), Launcher::slurm, {4, 10, 0, 4, 1, 4, 1, 4}},
    };
    for (const Row& row : rows) {
        INFO(row.name);
        const auto found = find_launcher(row.environment);
        REQUIRE(found.has_value());
        CHECK(found->launcher == row.launcher);
        CHECK(numbers(found->info) == row.info);
    }
}

TEST_CASE("jobs and hosts are named as their launcher does", "[client][launchers]") {
    CHECK(find_launcher(kSlurm)->info.job == "17.0");
    CHECK(find_launcher(kSlurm)->info.host_name == "n2");
    CHECK(find_launcher(kTorchrun)->info.job == "run.3");
}

TEST_CASE("an agent goes before everything else", "[client][launchers]") {
    const Environment agent{{"DTRUN_SOCKET", "@x"}, {"DTRUN_RANK", "3"}, {"DTRUN_GENERATION", "2"}};
    const auto found = find_launcher(with(with(kSlurm, kDaemon), agent));
    REQUIRE(found.has_value());
    CHECK(found->launcher == Launcher::agent);
    CHECK(found->socket == "@x");
    CHECK(found->info.rank == 3);
    CHECK(found->info.generation == 2);
    CHECK_FALSE(found->daemon.has_value());
}

TEST_CASE("a daemon hands out ranks when nobody else does, or when they may change",
          "[client][launchers]") {
    const auto alone = find_launcher(with(kDaemon, {{"DTRUN_SERVER_TIMEOUT", "5"}}));
    REQUIRE(alone.has_value());
    CHECK(alone->launcher == Launcher::daemon);
    CHECK(alone->daemon->host == "head");
    CHECK(alone->daemon->port == "29400");
    CHECK(alone->daemon->timeout_ms == 5'000);
    CHECK(alone->info.job == alone->daemon->job_name);
    const auto elastic = find_launcher(with(with(kSlurm, kDaemon), {{"DTRUN_MIN_NP", "2"}}));
    REQUIRE(elastic.has_value());
    CHECK(elastic->launcher == Launcher::daemon);
    CHECK(elastic->daemon->ranks_min == 2);
    const auto six = find_launcher(with(kDaemon, {{"DTRUN_SERVE", "[fe80::1]:29400"}}));
    REQUIRE(six.has_value());
    CHECK(six->daemon->host == "fe80::1");
    const auto bare = find_launcher(with(kDaemon, {{"DTRUN_SERVE", "::1"}}));
    REQUIRE(bare.has_value());
    CHECK(bare->daemon->host == "::1");
    CHECK(bare->daemon->port == "29400");
    const auto usual = find_launcher(with(kDaemon, {{"DTRUN_SERVE", "[fe80::1]"}}));
    REQUIRE(usual.has_value());
    CHECK(usual->daemon->host == "fe80::1");
    CHECK(usual->daemon->port == "29400");
}

TEST_CASE("half-set and contradictory variables are named", "[client][launchers]") {
    struct Row {
        Environment environment;
        const char* mistake;
    };
    const std::vector<Row> rows{
        {{{"RANK", "0"}}, "WORLD_SIZE is not set, but others of its launcher are"},
        {{{"PMI_SIZE", "2"}}, "PMI_RANK is not set, but others of its launcher are"},
        {with(kTorchrun, {{"RANK", "8"}}), "RANK=8 is not below WORLD_SIZE=8"},
        {with(kTorchrun, {{"RANK", "x"}}), "RANK='x' is not a number from 0 to 4294967294"},
        {with(kTorchrun, {{"WORLD_SIZE", ""}}), "WORLD_SIZE='' is not a number"},
        {with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4"},
        {with(kTorchrun, {{"GROUP_RANK", "2"}}), "GROUP_RANK=2 is not below GROUP_WORLD_SIZE=2"},
        {with(kPmi, {{"MPI_LOCALNRANKS", "3"}}),
         "MPI_LOCALNRANKS=3 is more than the 2 ranks of the job"},
        {with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4(x2),1"}}),
         "SLURM_STEP_TASKS_PER_NODE='4(x2),1' does not list 10 tasks on 4 nodes"},
        {with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4(x9999999999),1"}}),
         "does not list 10 tasks"},
        {with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4(x"}}), "does not list 10 tasks"},
        {with(kSlurm, {{"SLURM_LOCALID", "4"}}), "SLURM_LOCALID=4 is not below the 4 tasks"},
        {with(kSlurm, {{"SLURM_NODEID", "4"}}), "SLURM_NODEID=4 is not below"},
        {with(kDaemon, {{"DTRUN_SERVE", "head:x"}}), "DTRUN_SERVE='head:x' is not host:port"},
        {with(kDaemon, {{"DTRUN_SERVE", ":1"}}), "DTRUN_SERVE=':1' is not host:port"},
        {with(kDaemon, {{"DTRUN_SERVE", "::1:29779"}}),
         "DTRUN_SERVE='::1:29779' is not host:port, or [address]:port"},
        {with(kDaemon, {{"DTRUN_JOB_NAME", std::string(5'000, 'j')}}),
         "DTRUN_JOB_NAME has 5000 bytes, more than 4096"},
        {with(kDaemon, {{"DTRUN_JOB_NAME", ""}}), "DTRUN_JOB_NAME must name a job"},
        {with(kDaemon, {{"DTRUN_SECRET_FD", "3"}}), "either DTRUN_SECRET_FILE or DTRUN_SECRET_FD"},
        {with(kDaemon, {{"DTRUN_SECRET_FILE", ""}}), "either DTRUN_SECRET_FILE or DTRUN_SECRET_FD"},
        {with(kDaemon, {{"DTRUN_MIN_NP", "0"}}), "DTRUN_MIN_NP='0' is not a number from 1"},
        {with(kDaemon, {{"DTRUN_MIN_NP", "3"}, {"DTRUN_MAX_NP", "2"}}),
         "DTRUN_MAX_NP=2 is below DTRUN_MIN_NP=3"},
    };
    for (const Row& row : rows)
        CHECK_THAT(mistake(row.environment),
                   Catch::StartsWith(row.mistake) || Catch::Contains(row.mistake));
}

TEST_CASE("a secret's file must be ours alone, and hold enough", "[client][daemon]") {
    const TempDir dir;
    DaemonAddress address;
    address.job_name = "job";
    const auto text_for = [&](const std::string& content, mode_t mode) {
        address.secret_file = dir.write("secret", content, mode);
        const auto read = read_credentials(address);
        return read ? "fine" : read.error().text;
    };
    const std::string digits = "0123456789abcdef0123456789abcdef";
    CHECK(text_for(digits + "\n", 0600) == "fine");
    CHECK(text_for(digits, 0400) == "fine");
    CHECK_THAT(text_for(digits, 0640), Catch::Contains("others can read it; chmod 600"));
    for (const std::string& poor :
         {digits.substr(1), std::string(64, 'a'), digits.substr(1) + " \n"})
        CHECK_THAT(text_for(poor, 0600), Catch::Contains("a secret has 32 to 65536 bytes"));
    address.secret_file = dir.path() + "/missing";
    CHECK_THAT(read_credentials(address).error().text, Catch::Contains("No such file"));
}

TEST_CASE("a secret comes over a descriptor, which is closed", "[client][daemon]") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const std::string secret = "0123456789abcdef0123456789abcdef \r\n";
    REQUIRE(::write(ends[1], secret.data(), secret.size()) == 35);
    ::close(ends[1]);
    DaemonAddress address;
    address.job_name = "job";
    address.secret_fd = ends[0];
    const auto read = read_credentials(address);
    REQUIRE(read.has_value());
    CHECK(::fcntl(ends[0], F_GETFD) == -1);

    const TempDir dir;
    address.secret_fd = -1;
    address.secret_file = dir.write("secret", "0123456789abcdef0123456789abcdef", 0600);
    CHECK(std::ranges::equal(read_credentials(address)->secret.bytes(), read->secret.bytes()));
    address.job_name = "other";
    CHECK_FALSE(
        std::ranges::equal(read_credentials(address)->secret.bytes(), read->secret.bytes()));
}

TEST_CASE("the library's HMAC-SHA256 gives the values of RFC 4231", "[client][crypto]") {
    const auto bytes = [](std::string_view text) {
        return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    };
    // Test case 2, in two parts, and 6, whose key is longer than a block.
    CHECK(hex(hmac_sha256(bytes("Jefe"), {bytes("what do ya want "), bytes("for nothing?")})) ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    const std::string long_key(131, '\xaa');
    CHECK(hex(hmac_sha256(bytes(long_key),
                          {bytes("Test Using Larger Than Block-Size Key - Hash Key First")})) ==
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(equal_constant_time(bytes("same"), bytes("same")));
    CHECK_FALSE(equal_constant_time(bytes("same"), bytes("sane")));
    CHECK_FALSE(equal_constant_time(bytes("same"), bytes("sam")));
}

}  // namespace dtrun::embedded
