// What Horovod's own test of elastic jobs (test/integration/elastic_common.py) expects of its launcher, with
// the real library, on real hosts: also what it leaves out for torch, as its workers may abort there.
#include "tests/cluster/support/horovod.h"
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <fstream>
#include <sstream>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
using Lines = std::vector<std::string>;

namespace test_elastic_horovod {

constexpr int kHosts = 4;

/// What rank 0 said at the end of an epoch.
struct Epoch {
    int started = -1;  ///< the rank with which its process was started
    int size = 0;
    int worlds = 0;  ///< so far, this one included
    std::string host;

    bool operator==(const Epoch&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Epoch& epoch) {
    return out << fmt::format("started as {}, size {}, world {}, {}", epoch.started, epoch.size,
                              epoch.worlds, epoch.host);
}

struct Trained {
    Finished done;
    std::vector<Epoch> epochs;
};

/// A script that prints the hosts of an epoch, of which the file that the ranks write has a line each. The
/// last hosts are those of all later epochs.
std::string discovery_script(const Cluster& cluster, const std::string& log,
                             const std::vector<std::string>& hosts) {
    std::string text = fmt::format("#!/bin/sh\ncase $(cat {} 2>/dev/null | wc -l) in\n", log);
    for (std::size_t epoch = 0; epoch < hosts.size(); ++epoch)
        text += fmt::format("{}) printf '{}\\n' ;;\n",
                            epoch + 1 < hosts.size() ? std::to_string(epoch) : "*", hosts[epoch]);
    return write_program(cluster, "discover", text + "esac\n");
}

struct Job {
    Lines words;                ///< of dtrun, without hosts
    Lines hosts;                ///< in each epoch, as discovery prints them
    std::string fixed_hosts{};  ///< instead of these: for -H
    Lines arguments{};          ///< of the program
};

Trained train(const Job& job) {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string log = fresh_directory(cluster, "schedule") / "epochs";
    Lines words{"--tag", "none"};
    words.insert(words.end(), job.words.begin(), job.words.end());
    if (job.fixed_hosts.empty())
        words.insert(words.end(),
                     {"--host-discovery-script", discovery_script(cluster, log, job.hosts)});
    else
        words.insert(words.end(), {"-H", job.fixed_hosts});
    Lines arguments{"--logfile", log};
    arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
    add_horovod(words, "horovod_schedule.py", arguments);
    Trained trained{cluster.dtrun(std::move(words), horovod_options()), {}};
    for (const std::string& line : lines_of(file_text(log))) {
        std::istringstream fields(line);
        int number = 0, rank = 0;
        Epoch epoch;
        fields >> number >> epoch.started >> rank >> epoch.size >> epoch.worlds >> epoch.host;
        CHECK(rank == 0);
        trained.epochs.push_back(std::move(epoch));
    }
    CHECK(cluster.wait_all_gone());
    return trained;
}

/// A host is added after the first epoch, and the first one is removed after the second.
Trained change_hosts(const std::string& reset_limit) {
    return train(
        {.words = {"-np", "1", "--min-np", "1", "--max-np", "2", "--reset-limit", reset_limit},
         .hosts = {"s1:1", "s1:1\\ns2:1", "s2:1"},
         .arguments = {"--change-after", "0", "1"}});
}

/// Two hosts, of which that of a rank that has failed is given up, as Horovod does.
Job failing(Lines ranks, Lines flags = {}) {
    Job job{.words = {"-np", "4", "--refill", "never"},
            .hosts = {"s1:2\\ns2:2"},
            .arguments = {"--exit-epoch", "1", "--exit-ranks"}};
    job.words.insert(job.words.end(), flags.begin(), flags.end());
    job.arguments.insert(job.arguments.end(), ranks.begin(), ranks.end());
    return job;
}

TEST_CASE("Horovod's test: hosts are added and removed, the first one too, within the reset limit",
          "[cluster][frameworks][horovod][elastic]") {
    const Trained trained = change_hosts("2");
    INFO(trained.done.out << trained.done.err);
    CHECK(trained.done.exit_code == 0);
    CHECK(trained.epochs == std::vector<Epoch>{{0, 1, 1, "s1"}, {0, 2, 2, "s1"}, {1, 1, 3, "s2"}});
}

TEST_CASE("Horovod's test: one change more than the reset limit ends the job with Horovod's words",
          "[cluster][frameworks][horovod][elastic][only-long]") {
    const Trained trained = change_hosts("1");
    INFO(trained.done.out << trained.done.err);
    CHECK(trained.done.exit_code == 207);
    CHECK_THAT(trained.done.err,
               Contains("Horovod was shutdown because number of resets during elastic job exceeded "
                        "limit: 1"));
    CHECK(trained.epochs.size() == 2);
}

TEST_CASE("Horovod's test: ranks of the other host go on when rank 0 fails or is killed",
          "[cluster][frameworks][horovod][elastic]") {
    const std::vector<Epoch> expected{{0, 4, 1, "s1"}, {2, 2, 2, "s2"}, {2, 2, 2, "s2"}};
    Job discovered = failing({"0"}, {"--min-np", "2"});
    Job fixed = discovered;
    fixed.fixed_hosts = "s1:2,s2:2";
    fixed.arguments.insert(fixed.arguments.end(), {"--exit-mode", "kill"});
    for (const Job& job : {discovered, fixed}) {
        const Trained trained = train(job);
        INFO(trained.done.out << trained.done.err);
        CHECK(trained.done.exit_code == 0);
        CHECK(trained.epochs == expected);
    }
}

TEST_CASE("Horovod's test: the job fails when all its ranks do, again and again",
          "[cluster][frameworks][horovod][elastic][only-long]") {
    const Trained trained =
        train(failing({"0", "1", "2", "3"}, {"--min-np", "2", "--refill", "now"}));
    INFO(trained.done.out << trained.done.err);
    CHECK(trained.done.exit_code == 1);
    CHECK_THAT(trained.done.err, Contains("is due"));
    REQUIRE_FALSE(trained.epochs.empty());
    CHECK(trained.epochs.front() == Epoch{0, 4, 1, "s1"});
}

TEST_CASE("Horovod's test: the job ends when a rank has failed on each host and no host is left",
          "[cluster][frameworks][horovod][elastic][only-long]") {
    const Trained trained = train(failing({"0", "2"}, {"--min-np", "2", "--elastic-timeout", "1"}));
    INFO(trained.done.out << trained.done.err);
    CHECK(trained.done.exit_code != 0);
    CHECK(trained.epochs == std::vector<Epoch>{{0, 4, 1, "s1"}});
}

TEST_CASE("Horovod's test: the job ends when fewer slots than it needs are left for too long",
          "[cluster][frameworks][horovod][elastic][only-long]") {
    const Trained trained = train(failing({"0"}, {"--min-np", "4", "--elastic-timeout", "1"}));
    INFO(trained.done.out << trained.done.err);
    CHECK(trained.done.exit_code == 207);
    CHECK_THAT(trained.done.err,
               Contains("the job cannot go on: too few slots were there for 1 s, now 2 of the 4"));
    CHECK(trained.epochs == std::vector<Epoch>{{0, 4, 1, "s1"}});
}

}  // namespace test_elastic_horovod
