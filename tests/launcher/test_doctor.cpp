// What a doctor makes of what hosts tell.
#include "launcher/doctor/doctor_report.h"
#include "launcher/doctor/doctor_run.h"
#include "tests/support/catch.h"
#include "tests/support/virtual_time.h"

#include <fmt/format.h>
#include <boost/json/parse.hpp>
#include <set>

using namespace dtrun;
using namespace dtrun::doctor;
using Catch::Contains;

namespace {

/// Hosts s1, s2, … in one network that have nothing wrong, and reach each other at one speed.
DoctorReport healthy(std::size_t count) {
    DoctorReport report;
    for (std::size_t i = 0; i < count; ++i) {
        HostReport& host = report.hosts.emplace_back();
        host.name = fmt::format("s{}", i + 1);
        host.login = std::chrono::milliseconds(200);
        host.seen =
            Examined{0, 4000, {{"eth0", fmt::format("10.0.0.{}", i + 1), 24, 1500, 10'000}}};
        host.facts = {{"directory_problem", ""},  {"descriptors", "1048576"},
                      {"processes", "unlimited"}, {"memlock", "unlimited"},
                      {"shm", "8589934592"},      {"shm_free", "8589934592"},
                      {"python", "3.11.2"},       {"python_path", "/usr/bin/python3"},
                      {"torch", "2.1.0"},         {"mpi", "Open MPI 4.1.4"},
                      {"gpus", "8 x H100"}};
        host.visited.emplace();
    }
    for (std::size_t a = 0; a < count; ++a)
        for (std::size_t b = a + 1; b < count; ++b)
            report.pairs.push_back({.from = a, .to = b, .bytes_per_second = 1e9});
    return report;
}

void set_fact(HostReport& host, std::string_view name, const std::string& value) {
    for (HostFact& fact : host.facts)
        if (fact.name == name) fact.value = value;
}

void fail_visits(DoctorReport& report, std::size_t from, std::size_t to) {
    for (const ProbeTarget& target : targets_for(report, from))
        if (target.host == report.hosts[to].name)
            report.hosts[from].visited->push_back({target, "no answer"});
}

/// "s1,s2 topic: text" of all that is found.
std::vector<std::string> found_in(const DoctorReport& report) {
    std::vector<std::string> lines;
    for (const Finding& finding : diagnose(report))
        lines.push_back(
            fmt::format("{} {}: {}", fmt::join(finding.hosts, ","), finding.topic, finding.text));
    return lines;
}

std::string only_finding(const DoctorReport& report) {
    const auto lines = found_in(report);
    INFO(fmt::format("{}", fmt::join(lines, "\n")));
    REQUIRE(lines.size() == 1);
    return lines[0];
}

/// Hosts that swallow packets, and behind these some that know no key of ours.
class SilentHosts final : public head::ChannelOpener {
public:
    SilentHosts(const asio::any_io_executor& executor, std::uint32_t silent)
        : executor_(executor), silent_(silent) {}

    asio::awaitable<Result<std::unique_ptr<transport::Channel>>> open(
        HostId host, head::AgentRun, Deadline deadline,
        std::function<void(const char*)> phase) override {
        const bool is_silent = std::to_underlying(host) < silent_;
        phase("connecting");
        Timer timer(executor_, is_silent ? deadline : after(std::chrono::milliseconds(5)));
        co_await timer.async_wait(use_tuple);
        if (is_silent) co_return fail(Errc::timed_out, "no answer");
        phase("ssh authentication");
        refused_last = Clock::now();
        co_return fail(Errc::denied, "it does not know this key");
    }

    Deadline refused_last{};

private:
    asio::any_io_executor executor_;
    std::uint32_t silent_;
};

}  // namespace

TEST_CASE("Hosts that swallow packets keep a doctor from no others", "[doctor]") {
    VirtualTime time;
    asio::io_context io(1);
    plan::JobSpec spec;
    spec.options.fanout = 4;
    for (int i = 0; i < 40; ++i) {
        spec.hosts.emplace_back().host.name = fmt::format("s{}", i);
        spec.hosts.back().transport = plan::Transport::ssh;
    }
    SilentHosts hosts(io.get_executor(), 20);
    DoctorRun doctor(io.get_executor(), spec, hosts);
    std::optional<DoctorReport> report;
    const Deadline began = Clock::now();
    asio::co_spawn(io, doctor.run(), [&report](std::exception_ptr error, DoctorReport found) {
        if (error) std::rethrow_exception(error);
        report = std::move(found);
    });
    time.run(
        io, [&report] { return report.has_value(); }, began + std::chrono::minutes(1));
    CHECK(hosts.refused_last - began < std::chrono::seconds(2));
    CHECK(report->took < std::chrono::seconds(14));
    CHECK(report->hosts[0].why == "no answer within 10 s (--connect-timeout)");
    CHECK(report->hosts[39].why == "it does not know this key");
}

TEST_CASE("A doctor finds nothing where all is well", "[doctor]") {
    for (const std::size_t count : {1u, 2u, 3u, 7u}) {
        const DoctorReport report = healthy(count);
        CHECK(found_in(report).empty());
        CHECK_THAT(to_text(report, {}), Contains("all is well; Python 3.11.2, torch 2.1.0"));
    }
}

TEST_CASE("Hosts that cannot be examined are named by what is in the way", "[doctor]") {
    DoctorReport report = healthy(4);
    for (const std::size_t host : {1u, 3u}) {
        report.hosts[host] = {.name = report.hosts[host].name};
        report.hosts[host].why = "Permission denied";
    }
    std::erase_if(report.pairs,
                  [](const PairSpeed& pair) { return pair.from % 2 == 1 || pair.to % 2 == 1; });
    CHECK(only_finding(report) == "s2,s4 log-in: Permission denied");
    CHECK_THAT(to_text(report, diagnose(report)), Contains("s2 and s4: Permission"));
}

TEST_CASE("A clock is wrong only by more than the answer took", "[doctor]") {
    using namespace std::chrono_literals;
    DoctorReport report = healthy(3);
    report.hosts[1].ahead = -120s;
    report.hosts[2].ahead = 3s;
    report.hosts[2].uncertainty = 2500ms;
    CHECK_THAT(only_finding(report), Contains("s2 clock: its clock is 120 s behind"));
}

TEST_CASE("What is too small by itself is told, also if it is so everywhere", "[doctor]") {
    DoctorReport report = healthy(2);
    for (HostReport& host : report.hosts) set_fact(host, "shm", "67108864");
    CHECK_THAT(only_finding(report), Contains("s1,s2 shm: /dev/shm has only 64.0 MiB"));
    report = healthy(3);
    set_fact(report.hosts[2], "descriptors", "1024");
    CHECK_THAT(only_finding(report), Contains("s3 limits: only 1024 open files"));
    report = healthy(3);
    set_fact(report.hosts[0], "shm_free", "1000");
    CHECK_THAT(only_finding(report), Contains("s1 shm: /dev/shm is full"));
    report = healthy(3);
    report.hosts[1].facts.push_back({"rdma", "yes"});
    set_fact(report.hosts[1], "memlock", "8388608");
    CHECK_THAT(only_finding(report), Contains("s2 limits: only 8388608 bytes of memory"));
    report = healthy(3);
    report.directory = "/work";
    set_fact(report.hosts[1], "directory_problem", "No such file or directory");
    CHECK_THAT(only_finding(report),
               Contains("s2 directory: /work: No such file or directory; ranks would"));
}

TEST_CASE("Of versions the few that differ from the many are one line for each host", "[doctor]") {
    DoctorReport report = healthy(5);
    set_fact(report.hosts[3], "python", "3.9.1");
    set_fact(report.hosts[3], "python_path", "/opt/bin/python3");
    set_fact(report.hosts[3], "torch", "");
    CHECK(only_finding(report) ==
          "s4 versions: Python 3.9.1, elsewhere 3.11.2; torch is not there, elsewhere 2.1.0 "
          "(Python is /opt/bin/python3 there)");
    report = healthy(3);
    set_fact(report.hosts[1], "gpus", "7 x H100");
    CHECK_THAT(only_finding(report), Contains("s2 gpus: it has 7 x H100, elsewhere there are"));
    report = healthy(3);
    for (HostReport& host : report.hosts)
        host.facts.push_back({"gpus_in_use", "GPU 3 (40960 MiB, 2 processes)"});
    CHECK_THAT(only_finding(report), Contains("s1,s2,s3 gpus: others compute there: GPU 3"));
}

TEST_CASE("A program that does not tell its version is a trouble, on one host and on all",
          "[doctor]") {
    for (const std::size_t count : {1u, 3u}) {
        DoctorReport report = healthy(count);
        for (HostReport& host : report.hosts) set_fact(host, "python", "(does not answer)");
        const std::vector<std::string> found = found_in(report);
        REQUIRE(found.size() == 1);
        CHECK_THAT(found[0], Contains("s1") && Contains("versions: python3 does not answer: "));
        const std::string shown = to_text(report, diagnose(report));
        CHECK_THAT(shown, Contains("1 trouble; ") && !Contains("(does not answer)"));
    }
    DoctorReport report = healthy(3);
    set_fact(report.hosts[1], "gpus", "(fails with exit code 9)");
    CHECK_THAT(only_finding(report), Contains("s2 gpus: nvidia-smi fails with exit code 9: "));
    CHECK_THAT(to_text(report, diagnose(report)), Contains("8 x H100"));
}

TEST_CASE("Of a Python that does not answer nobody says that it lacks packages", "[doctor]") {
    DoctorReport report = healthy(4);
    for (const std::size_t host : {0u, 1u, 2u}) {
        set_fact(report.hosts[host], "python", "(does not answer)");
        set_fact(report.hosts[host], "torch", "");
    }
    CHECK_THAT(only_finding(report), Contains("s1,s2,s3 versions: python3 does not answer: "));
    set_fact(report.hosts[3], "mpi", "(fails with exit code 1)");
    REQUIRE(found_in(report).size() == 2);
    CHECK_THAT(found_in(report)[1],
               Contains("s4 versions: mpirun --version fails with exit code 1: "));
}

TEST_CASE("Who is not reached, and who does not reach, are told apart", "[doctor]") {
    DoctorReport report = healthy(5);
    for (const std::size_t from : {0u, 1u, 3u, 4u}) fail_visits(report, from, 2);
    CHECK(only_finding(report) ==
          "s3 ports: no other host reaches its ports (10.0.0.3 port 4000: no answer); is there a "
          "firewall?");
    report = healthy(5);
    for (const std::size_t to : {0u, 1u, 3u, 4u}) fail_visits(report, 2, to);
    CHECK(only_finding(report) ==
          "s3 ports: it does not reach s1 (10.0.0.1), s2 (10.0.0.2), s4 (10.0.0.4) and s5 "
          "(10.0.0.5): no answer");
    report = healthy(3);
    report.home = {{"", "10.0.0.9", 5000}, {"", "10.1.0.9", 5000}};
    report.hosts[0].visited->push_back({report.home[0], "no answer"});
    CHECK(found_in(report).empty());  // one way is enough
    report.hosts[0].visited->push_back({report.home[1], "Connection refused"});
    CHECK_THAT(only_finding(report), Contains("s1 ports: it cannot connect back"));
}

TEST_CASE("A host ought to reach others at all addresses of networks that it shares", "[doctor]") {
    DoctorReport report = healthy(3);
    for (std::size_t i = 0; i < 3; ++i) {
        auto& addresses = report.hosts[i].seen->addresses;
        addresses.push_back({"docker0", "172.17.0.1", 16, 1500, 0});
        if (i < 2) addresses.push_back({"ib0", fmt::format("10.1.0.{}", i + 1), 24, 4092, 0});
        addresses.push_back({"eth1", fmt::format("192.168.{}.5", i), 24, 1500, 0});
    }
    const auto addresses = [&](std::size_t from) {
        std::set<std::string> found;
        for (const ProbeTarget& target : targets_for(report, from)) found.insert(target.address);
        return found;
    };
    CHECK(addresses(0) == std::set<std::string>{"10.0.0.2", "10.0.0.3", "10.1.0.2"});
    CHECK(addresses(2) == std::set<std::string>{"10.0.0.1", "10.0.0.2"});
    report.hosts[2].seen->addresses = {{"eth0", "10.9.0.3", 24, 1500, 0},
                                       {"eth1", "10.8.0.3", 24, 1500, 0}};
    CHECK(addresses(0) == std::set<std::string>{"10.0.0.2", "10.1.0.2", "10.9.0.3", "10.8.0.3"});
    report.hosts[0].visited->push_back({{"s3", "10.9.0.3", 4000}, "no answer"});
    CHECK(found_in(report).empty());  // it is behind a router: one of its addresses is enough
    CHECK(open_target(report, 0, 2)->address == "10.8.0.3");
}

TEST_CASE("Names that are one machine are told, and what leads nowhere is not compared",
          "[doctor]") {
    DoctorReport report = healthy(3);
    report.hosts[2].seen->addresses = report.hosts[0].seen->addresses;
    CHECK_THAT(only_finding(report), Contains("s1,s3 names: these names are one machine"));
    report = healthy(3);
    for (HostReport& host : report.hosts)
        host.seen->addresses.push_back({"docker0", "172.17.0.1", 16, 1500, 0});
    report.hosts[1].seen->addresses.back().mtu = 1450;
    CHECK(found_in(report).empty());
}

TEST_CASE("A host with a trouble of its own is not blamed for its ports and its speed",
          "[doctor]") {
    DoctorReport report = healthy(4);
    for (const std::size_t from : {0u, 2u, 3u}) fail_visits(report, from, 1);
    for (PairSpeed& pair : report.pairs)
        if (pair.from == 1 || pair.to == 1) pair = {pair.from, pair.to, 0, "", 3};
    report.hosts[1].why = "its agent stopped answering";
    CHECK(only_finding(report) == "s2 log-in: its agent stopped answering");
}

TEST_CASE("In one network packets have one size", "[doctor]") {
    DoctorReport report = healthy(4);
    report.hosts[1].seen->addresses[0].mtu = 9000;
    CHECK_THAT(only_finding(report), Contains("s2 mtu: eth0 has an MTU of 9000"));
}

TEST_CASE("A slow host and a slow link are told apart, and some difference is usual", "[doctor]") {
    DoctorReport report = healthy(6);
    for (PairSpeed& pair : report.pairs)
        if (pair.from == 2 || pair.to == 2) pair.bytes_per_second = 2e6;
    CHECK(found_in(report).empty());  // it may have been chance
    for (PairSpeed& pair : report.pairs)
        if (pair.from == 2) pair.looks = 3;
    CHECK_THAT(only_finding(report),
               Contains("s3 speed: it exchanges 2 MB/s with others, who have 1.0 GB/s"));
    CHECK(suspicious(report).size() == 1);
    report = healthy(6);
    report.pairs[0].bytes_per_second = 2e6;
    report.pairs[0].looks = 3;
    CHECK_THAT(only_finding(report), Contains("s1 speed: with s2 it exchanges only 2 MB/s"));
    report = healthy(6);
    for (std::size_t i = 0; i < report.pairs.size(); i += 2) report.pairs[i].bytes_per_second = 4e8;
    CHECK(found_in(report).empty());
    report = healthy(2);
    report.pairs[0].bytes_per_second = 0;
    report.pairs[0].looks = 3;
    report.pairs[0].why = "it connects, but no data come through";
    CHECK_THAT(only_finding(report), Contains("compare the MTU"));
}

TEST_CASE("In each round everybody has one partner, and over all rounds everybody once",
          "[doctor]") {
    for (std::size_t count = 0; count < 12; ++count) {
        std::vector<std::size_t> hosts;
        for (std::size_t i = 0; i < count; ++i) hosts.push_back(i * 3);
        std::set<std::pair<std::size_t, std::size_t>> met;
        for (const auto& round : rounds_of(hosts, 100)) {
            std::set<std::size_t> busy;
            for (const auto& [a, b] : round) {
                CHECK(busy.insert(a).second);
                CHECK(busy.insert(b).second);
                CHECK(met.insert(std::minmax(a, b)).second);
            }
        }
        CHECK(met.size() == (count == 0 ? 0 : count * (count - 1) / 2));
    }
    std::vector<std::size_t> many(64);
    CHECK(rounds_of(many, 6).size() == 6);
}

TEST_CASE("What was found out is there as JSON", "[doctor]") {
    DoctorReport report = healthy(2);
    set_fact(report.hosts[1], "python", "3.9.1");
    const auto all = boost::json::parse(to_json(report, diagnose(report))).as_object();
    CHECK(all.at("schema") == 1);
    CHECK(all.at("hosts").as_array().size() == 2);
    CHECK(all.at("hosts").at(1).at("facts").at("python") == "3.9.1");
    CHECK(all.at("findings").at(0).at("hosts").at(0) == "s2");
    CHECK(all.at("findings").at(0).at("topic") == "versions");
    CHECK(all.at("pairs").at(0).at("bytes_per_second") == 1e9);
}
