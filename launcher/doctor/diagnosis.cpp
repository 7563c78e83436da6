#include "base/strings.h"
#include "hostfiles/hosts_alike.h"
#include "hostfiles/nodelist.h"
#include "launcher/doctor/doctor_report.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace dtrun::doctor {
namespace {

constexpr double kSlower = 4;  // than others: a speed that is worth a word
constexpr std::chrono::seconds kClockMax{1};
constexpr std::chrono::seconds kLoginMax{3};
constexpr std::uint64_t kShmMin = 256u << 20;
constexpr std::uint64_t kShmFreeMin = 64u << 20;
constexpr long long kDescriptorsMin = 4096;

/// The best that each host has reached with anybody.
std::map<std::size_t, double> best_speeds(const DoctorReport& report) {
    std::map<std::size_t, double> best;
    for (const PairSpeed& pair : report.pairs)
        for (const std::size_t host : {pair.from, pair.to})
            best[host] = std::max(best[host], pair.bytes_per_second);
    return best;
}

/// What hosts reach here, in the middle; 0: nobody has exchanged anything.
double usual_speed(const DoctorReport& report) {
    std::vector<double> speeds;
    for (const auto& [host, speed] : best_speeds(report)) speeds.push_back(speed);
    if (speeds.empty()) return 0;
    std::ranges::sort(speeds);
    return speeds[speeds.size() / 2];
}

std::string speed_text(double bytes_per_second) {
    if (bytes_per_second >= 1e9) return fmt::format("{:.1f} GB/s", bytes_per_second / 1e9);
    if (bytes_per_second >= 1e6) return fmt::format("{:.0f} MB/s", bytes_per_second / 1e6);
    return fmt::format("{:.1f} MB/s", bytes_per_second / 1e6);
}

std::string size_text(std::uint64_t bytes) {
    const auto size = static_cast<double>(bytes);
    if (bytes >= 1u << 30) return fmt::format("{:.1f} GiB", size / (1u << 30));
    return fmt::format("{:.1f} MiB", size / (1u << 20));
}

/// Collects what is found; equal texts become one finding.
class Findings {
public:
    void add(std::string_view topic, const std::string& host, std::string text) {
        const auto known = std::ranges::find_if(
            found_, [&](const Finding& each) { return each.topic == topic && each.text == text; });
        if (known == found_.end())
            found_.push_back({std::string(topic), {host}, std::move(text)});
        else if (std::ranges::find(known->hosts, host) == known->hosts.end())
            known->hosts.push_back(host);
    }
    std::vector<Finding> take() { return std::move(found_); }

private:
    std::vector<Finding> found_;
};

/// The value that most hosts have of those that know it; of two that as many have, the one of the first host.
std::string usual_value(const std::vector<const HostReport*>& hosts, std::string_view fact) {
    std::map<std::string_view, int> counts;
    for (const HostReport* host : hosts)
        if (host->knows(fact)) ++counts[host->fact(fact)];
    std::string_view usual;
    int most = 0;
    for (const HostReport* host : hosts)
        if (const int count = counts[host->fact(fact)]; count > most) {
            most = count;
            usual = host->fact(fact);
        }
    return std::string(usual);
}

void judge_logins(const DoctorReport& report, Findings& findings) {
    std::vector<std::chrono::milliseconds> times;
    for (const HostReport& host : report.hosts)
        if (host.seen && !host.copied) times.push_back(host.login);
    std::ranges::sort(times);
    std::vector<std::pair<std::string, std::string>> failed;
    for (const HostReport& host : report.hosts)
        if (host.why) failed.emplace_back(host.name, *host.why);
    for (const auto& [names, why] : group_alike(failed))
        for (const std::string& name : names) findings.add("log-in", name, why);
    for (const HostReport& host : report.hosts) {
        if (!host.why && !host.copied && host.login > kLoginMax && times.size() > 2 &&
            host.login > 4 * times[times.size() / 2]) {
            findings.add(
                "log-in", host.name,
                fmt::format("it takes {:.0f} s to log in, elsewhere {:.1f}; its name "
                            "service or its home may be slow",
                            std::chrono::duration<double>(host.login).count(),
                            std::chrono::duration<double>(times[times.size() / 2]).count()));
        }
    }
}

void judge_clocks(const DoctorReport& report, Findings& findings) {
    for (const HostReport& host : report.hosts) {
        if (!host.seen || host.here) continue;
        const auto off = std::chrono::abs(host.ahead);
        if (off - host.uncertainty <= kClockMax) continue;
        findings.add("clock", host.name,
                     fmt::format("its clock is {:.0f} s {} this machine's, so times of logs and of "
                                 "checkpoints do not agree; is an NTP service running there?",
                                 std::chrono::duration<double>(off).count(),
                                 host.ahead.count() > 0 ? "ahead of" : "behind"));
    }
}

/// The numbers of which a small one is a trouble by itself.
void judge_limits(const DoctorReport& report, Findings& findings) {
    std::vector<const HostReport*> known;
    for (const HostReport& host : report.hosts)
        if (!host.facts.empty()) known.push_back(&host);
    const std::pair<std::string_view, std::string_view> limits[] = {
        {"descriptors", "open files (ulimit -Hn)"},
        {"processes", "processes (ulimit -Hu)"},
        {"memlock", "locked memory in bytes (ulimit -Hl)"}};
    std::map<std::string_view, std::string> usual;
    for (const auto& [fact, what] : limits) usual[fact] = usual_value(known, fact);
    for (const HostReport* host : known) {
        if (const std::string_view problem = host->fact("directory_problem"); !problem.empty())
            findings.add("directory", host->name,
                         fmt::format("{}: {}; {}", report.directory, problem,
                                     report.directory_required
                                         ? "ranks cannot run there (--wdir)"
                                         : "ranks would run in their home; mount it there, or "
                                           "write --wdir DIR"));
        const auto descriptors = to_int(host->fact("descriptors"), 0, INT64_MAX);
        const bool few = descriptors && *descriptors < kDescriptorsMin;
        if (few)
            findings.add("limits", host->name,
                         fmt::format("only {} open files are allowed (ulimit -Hn); jobs with many "
                                     "ranks need {}",
                                     *descriptors, kDescriptorsMin));
        if (host->fact("rdma") == "yes" && host->fact("memlock") != "unlimited")
            findings.add("limits", host->name,
                         fmt::format("only {} bytes of memory may be locked (ulimit -Hl); "
                                     "InfiniBand needs \"unlimited\"",
                                     host->fact("memlock")));
        for (const auto& [fact, what] : limits) {
            const bool said = (fact == "descriptors" && few) ||
                              (fact == "memlock" && host->fact("rdma") == "yes");
            if (said || host->fact(fact) == usual[fact] || host->fact(fact).empty()) continue;
            findings.add("limits", host->name,
                         fmt::format("{}: {}, elsewhere {}", what, host->fact(fact), usual[fact]));
        }
    }
}

void judge_memory(const DoctorReport& report, Findings& findings) {
    constexpr std::string_view kWhy =
        "; NCCL and torch's data loaders need more (mount -o remount,size=8G /dev/shm, or docker "
        "run --shm-size=8g)";
    for (const HostReport& host : report.hosts) {
        if (host.facts.empty()) continue;
        const auto size = to_int(host.fact("shm"), 0, INT64_MAX);
        const auto free = to_int(host.fact("shm_free"), 0, INT64_MAX);
        if (!size)
            findings.add("shm", host.name, "there is no /dev/shm" + std::string(kWhy));
        else if (static_cast<std::uint64_t>(*size) < kShmMin)
            findings.add("shm", host.name,
                         fmt::format("/dev/shm has only {}{}",
                                     size_text(static_cast<std::uint64_t>(*size)), kWhy));
        else if (free && static_cast<std::uint64_t>(*free) < kShmFreeMin)
            findings.add("shm", host.name,
                         fmt::format("/dev/shm is full: {} of {} are free; ls -l /dev/shm shows "
                                     "what is left there",
                                     size_text(static_cast<std::uint64_t>(*free)),
                                     size_text(static_cast<std::uint64_t>(*size))));
    }
}

/// One machine under several names has each rank twice.
void judge_names(const DoctorReport& report, Findings& findings) {
    std::map<std::string, std::vector<std::string>> names;  // by addresses
    for (const HostReport& host : report.hosts) {
        if (!host.is_well() || host.seen->addresses.empty()) continue;
        std::vector<std::string> addresses;
        for (const HostAddress& address : host.seen->addresses)
            addresses.push_back(address.interface + "=" + address.address);
        std::ranges::sort(addresses);
        names[fmt::format("{}", fmt::join(addresses, ","))].push_back(host.name);
    }
    for (const auto& [addresses, same] : names)
        for (const std::string& name : same)
            if (same.size() > 1)
                findings.add("names", name,
                             "these names are one machine: its addresses are the same; ports and "
                             "speeds to it were not tried");
}

/// Who does not reach whom. What nobody reaches, and who reaches nobody, are one line each.
class PortJudge {
public:
    PortJudge(const DoctorReport& report, Findings& findings)
        : report_(report), findings_(findings) {
        for (std::size_t from = 0; from < report.hosts.size(); ++from) look(from);
    }

    void judge() {
        judge_home();
        const auto& hosts = report_.hosts;
        for (std::size_t to = 0; to < hosts.size(); ++to) {
            const std::vector<std::size_t> callers = callers_of(to);
            const bool nobody = !callers.empty() && callers.size() == tried_by_[to].size();
            if (!nobody) continue;
            const VisitFailure& first = *failures_.at({to, callers.front()});
            findings_.add(
                "ports", hosts[to].name,
                fmt::format("no other host reaches its ports ({} port {}: {}); is there a "
                            "firewall?",
                            first.target.address, first.target.port, first.why));
            for (const std::size_t from : callers) failures_.erase({to, from});
        }
        std::map<std::pair<std::size_t, std::string>, std::vector<std::size_t>> by_reason;
        for (const auto& [pair, failure] : failures_)
            by_reason[{pair.second, failure->why}].push_back(pair.first);
        for (const auto& [reason, others] : by_reason)
            findings_.add("ports", hosts[reason.first].name,
                          fmt::format("it does not reach {}: {}", names_of(others, reason.first),
                                      reason.second));
    }

private:
    /// Hosts that `from` does not reach, with addresses where they are few.
    std::string names_of(const std::vector<std::size_t>& others, std::size_t from) const {
        constexpr std::size_t kFew = 4;
        std::vector<std::string> names;
        for (const std::size_t to : others) {
            const std::string& name = report_.hosts[to].name;
            const std::string& address = failures_.at({to, from})->target.address;
            names.push_back(others.size() > kFew ? name : fmt::format("{} ({})", name, address));
        }
        return name_hosts(names);
    }

    void look(std::size_t from) {
        const HostReport& self = report_.hosts[from];
        if (!self.visited) return;
        std::map<std::string, std::vector<ProbeTarget>> targets;  // by host
        for (ProbeTarget& target : targets_for(report_, from)) {
            std::vector<ProbeTarget>& of_host = targets[target.host];
            of_host.push_back(std::move(target));
        }
        std::map<std::pair<std::string, std::string>, const VisitFailure*> failed_at;
        for (const VisitFailure& failure : *self.visited)
            failed_at[{failure.target.host, failure.target.address}] = &failure;
        for (std::size_t to = 0; to < report_.hosts.size(); ++to) {
            const HostReport& other = report_.hosts[to];
            const VisitFailure* failed = nullptr;
            std::size_t tried = 0, failures = 0;
            if (!other.is_well()) continue;  // it has a trouble of its own
            for (const ProbeTarget& target : targets[other.name]) {
                ++tried;
                const auto found = failed_at.find({target.host, target.address});
                if (found == failed_at.end()) continue;
                ++failures;
                if (failed == nullptr) failed = found->second;
            }
            if (tried == 0) continue;
            tried_by_[to].push_back(from);
            const bool bad = have_common_network(self, other) ? failures > 0 : failures == tried;
            if (bad) failures_[{to, from}] = failed;
        }
    }

    std::vector<std::size_t> callers_of(std::size_t to) const {
        std::vector<std::size_t> callers;
        for (auto at = failures_.lower_bound({to, 0});
             at != failures_.end() && at->first.first == to; ++at)
            callers.push_back(at->first.second);
        return callers;
    }

    /// An agent connects to dtrun; by which of its addresses is all the same.
    void judge_home() {
        for (const HostReport& host : report_.hosts) {
            if (!host.visited || report_.home.empty() || host.here) continue;
            std::vector<std::string> tried;
            for (const ProbeTarget& target : report_.home) {
                const auto found = std::ranges::find(*host.visited, target, &VisitFailure::target);
                if (found != host.visited->end())
                    tried.push_back(fmt::format("{}: {}", target.address, found->why));
            }
            if (tried.size() == report_.home.size())
                findings_.add("ports", host.name,
                              fmt::format("it cannot connect back to this machine ({}); is there a "
                                          "firewall?",
                                          join_names(tried, 4)));
        }
    }

    const DoctorReport& report_;
    Findings& findings_;
    /// By target and caller.
    std::map<std::pair<std::size_t, std::size_t>, const VisitFailure*> failures_;
    std::map<std::size_t, std::vector<std::size_t>> tried_by_;  // by target
};

/// In one network all interfaces take packets of the same size.
void judge_mtus(const DoctorReport& report, Findings& findings) {
    std::map<std::string, std::map<std::uint32_t, int>> sizes;  // by network
    const auto holders = holders_of_addresses(report);          // several: it leads nowhere
    const auto each = [&](auto&& visit) {
        for (const HostReport& host : report.hosts)
            if (host.seen)
                for (const HostAddress& address : host.seen->addresses)
                    if (address.mtu > 0 && holders.at(address.address) == 1)
                        visit(host, address, sizes[network_of(address)]);
    };
    each(
        [](const HostReport&, const HostAddress& address, auto& counts) { ++counts[address.mtu]; });
    each([&](const HostReport& host, const HostAddress& address, auto& counts) {
        const auto usual = std::ranges::max_element(
            counts, {}, [](const auto& size) { return std::pair(size.second, size.first); });
        if (usual->first != address.mtu)
            findings.add("mtu", host.name,
                         fmt::format("{} has an MTU of {}, that of others in its network is {}: "
                                     "large messages may be lost or slow",
                                     address.interface, address.mtu, usual->first));
    });
}

/// A program that is there and does not work is a trouble by itself, also if it is so on all hosts.
void judge_program(const HostReport& host, std::string_view topic, std::string_view fact,
                   std::string_view program, Findings& findings) {
    const std::string_view trouble = trouble_of(host.fact(fact));
    if (!trouble.empty())
        findings.add(topic, host.name,
                     fmt::format("{} {}: start it there by hand to see why; its files may be on a "
                                 "slow file server, or what it needs may be missing",
                                 program, trouble));
}

void judge_versions(const DoctorReport& report, Findings& findings) {
    std::vector<const HostReport*> known;
    for (const HostReport& host : report.hosts)
        if (!host.facts.empty()) known.push_back(&host);
    const std::pair<std::string_view, std::string_view> programs[] = {
        {"python", "Python"}, {"torch", "torch"}, {"nccl", "NCCL"},
        {"mpi4py", "mpi4py"}, {"mpi", "MPI"},     {"driver", "NVIDIA's driver"}};
    std::map<std::string_view, std::string> usual;
    for (const auto& [fact, name] : programs) usual[fact] = usual_value(known, fact);
    for (const HostReport* host : known) {
        judge_program(*host, "versions", "python", "python3", findings);
        judge_program(*host, "versions", "mpi", "mpirun --version", findings);
        std::vector<std::string> differences;
        for (const auto& [fact, name] : programs) {
            const std::string_view value = host->fact(fact);
            if (value == usual[fact] || !host->knows(fact)) continue;
            differences.push_back(fmt::format("{} {}, elsewhere {}", name,
                                              value.empty() ? "is not there" : value,
                                              usual[fact].empty() ? "there is none" : usual[fact]));
        }
        if (differences.empty()) continue;
        const std::string_view path = host->fact("python_path");
        findings.add("versions", host->name,
                     fmt::format("{}{}", fmt::join(differences, "; "),
                                 path.empty() ? "" : fmt::format(" (Python is {} there)", path)));
    }
}

void judge_gpus(const DoctorReport& report, Findings& findings) {
    std::vector<const HostReport*> known;
    for (const HostReport& host : report.hosts)
        if (!host.facts.empty()) known.push_back(&host);
    const std::string usual = usual_value(known, "gpus");
    for (const HostReport* host : known) {
        const std::string_view gpus = host->fact("gpus");
        judge_program(*host, "gpus", "gpus", "nvidia-smi", findings);
        if (gpus != usual && host->knows("gpus"))
            findings.add("gpus", host->name,
                         fmt::format("it has {}, elsewhere there {}",
                                     gpus.empty() ? "no GPU that nvidia-smi shows" : gpus,
                                     usual.empty() ? "is none" : "are " + usual));
        if (const std::string_view used = host->fact("gpus_in_use"); !used.empty())
            findings.add("gpus", host->name,
                         fmt::format("others compute there: {}; nvidia-smi shows who", used));
        if (const std::string_view broken = host->fact("gpu_errors"); !broken.empty())
            findings.add("gpus", host->name,
                         fmt::format("memory errors that could not be corrected: {}; it is to be "
                                     "reset or replaced",
                                     broken));
    }
}

void judge_speeds(const DoctorReport& report, Findings& findings) {
    const double usual = usual_speed(report);
    const auto best = best_speeds(report);
    const auto is_slow = [&](std::size_t host) {
        return best.size() > 2 && best.at(host) * kSlower < usual;
    };
    const auto is_certain = [&](std::size_t host) {
        return std::ranges::any_of(report.pairs, [&](const PairSpeed& pair) {
            return (pair.from == host || pair.to == host) && pair.is_certain();
        });
    };
    for (const auto& [host, speed] : best)
        if (is_slow(host) && is_certain(host) && report.hosts[host].is_well())
            findings.add("speed", report.hosts[host].name,
                         fmt::format("it exchanges {} with others, who have {} among themselves: "
                                     "look at its network card, cable and switch port",
                                     speed_text(speed), speed_text(usual)));
    for (const PairSpeed& pair : report.pairs) {
        if (!report.hosts[pair.from].is_well() || !report.hosts[pair.to].is_well()) continue;
        if (is_slow(pair.from) || is_slow(pair.to) || !pair.is_certain()) continue;
        const std::string& from = report.hosts[pair.from].name;
        const std::string& to = report.hosts[pair.to].name;
        if (!pair.why.empty())
            findings.add(
                "speed", from,
                fmt::format("with {} {}: packets of some size are lost; compare the MTU of "
                            "all that lies between",
                            to, pair.why));
        else if (best.size() > 2 && pair.bytes_per_second * kSlower < usual)
            findings.add("speed", from,
                         fmt::format("with {} it exchanges only {}, with others {}", to,
                                     speed_text(pair.bytes_per_second), speed_text(usual)));
    }
}

}  // namespace

std::vector<PairSpeed> suspicious(const DoctorReport& report) {
    const double usual = usual_speed(report);
    const auto best = best_speeds(report);
    std::vector<PairSpeed> slow;
    std::set<std::size_t> looked_at;  // of hosts that are slow with everybody one pair is enough
    for (const PairSpeed& pair : report.pairs) {
        if (pair.bytes_per_second * kSlower >= usual && pair.why.empty()) continue;
        bool known = false;
        for (const std::size_t host : {pair.from, pair.to})
            if (best.at(host) * kSlower < usual) known = !looked_at.insert(host).second || known;
        if (!known) slow.push_back(pair);
    }
    return slow;
}

std::vector<Finding> diagnose(const DoctorReport& report) {
    Findings findings;
    judge_logins(report, findings);
    judge_names(report, findings);
    judge_clocks(report, findings);
    judge_limits(report, findings);
    judge_memory(report, findings);
    PortJudge(report, findings).judge();
    judge_mtus(report, findings);
    judge_versions(report, findings);
    judge_gpus(report, findings);
    judge_speeds(report, findings);
    return findings.take();
}

}  // namespace dtrun::doctor
