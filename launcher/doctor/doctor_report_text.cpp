#include "base/text_layout.h"
#include "base/utf8.h"
#include "hostfiles/nodelist.h"
#include "launcher/doctor/doctor_report.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

namespace dtrun::doctor {
namespace {

namespace json = boost::json;

double seconds_of(std::chrono::nanoseconds span) {
    return std::chrono::duration<double>(span).count();
}

/// What is the same everywhere and may interest: "Python 3.11.2, torch 2.1.0, 8 x H100 each".
std::string common_text(const DoctorReport& report) {
    const std::pair<std::string_view, std::string_view> facts[] = {
        {"python", "Python "}, {"torch", "torch "}, {"nccl", "NCCL "}, {"mpi", ""}, {"gpus", ""}};
    std::vector<std::string> parts;
    for (const auto& [fact, name] : facts) {
        std::string_view value;
        bool same = true, first = true;
        for (const HostReport& host : report.hosts) {
            if (!host.knows(fact)) continue;
            if (first) value = host.fact(fact);
            same = same && host.fact(fact) == value;
            first = false;
        }
        if (same && !value.empty()) parts.push_back(fmt::format("{}{}", name, value));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
}

json::object host_json(const HostReport& host) {
    json::object object;
    object["name"] = host.name;
    object["examined"] = host.is_well();
    if (host.why) object["why"] = *host.why;
    if (!host.seen) return object;
    object["login_s"] = seconds_of(host.login);
    object["clock_ahead_s"] = seconds_of(host.ahead);
    object["clock_uncertainty_s"] = seconds_of(host.uncertainty);
    json::array addresses;
    for (const HostAddress& address : host.seen->addresses)
        addresses.push_back(json::object{{"interface", address.interface},
                                         {"address", address.address},
                                         {"prefix", address.prefix},
                                         {"mtu", address.mtu},
                                         {"speed_mbps", address.speed_mbps}});
    object["addresses"] = std::move(addresses);
    json::object facts;
    for (const HostFact& fact : host.facts) facts[fact.name] = fact.value;
    object["facts"] = std::move(facts);
    return object;
}

}  // namespace

std::string to_text(const DoctorReport& report, const std::vector<Finding>& findings) {
    const auto examined =
        static_cast<std::size_t>(std::ranges::count_if(report.hosts, &HostReport::is_well));
    std::string text;
    for (const Finding& finding : findings)
        text += fmt::format("{}: {}\n", name_hosts(finding.hosts), finding.text);
    if (!findings.empty()) text += '\n';
    text += fmt::format("{} of {} examined in {:.1f} s: {}", examined,
                        plural(report.hosts.size(), "host"), seconds_of(report.took),
                        findings.empty() ? "all is well" : plural(findings.size(), "trouble"));
    double best = 0;
    for (const PairSpeed& pair : report.pairs) best = std::max(best, pair.bytes_per_second);
    if (const std::string common = common_text(report); !common.empty()) text += "; " + common;
    if (const auto uncertain = std::ranges::count_if(
            suspicious(report), [](const PairSpeed& pair) { return !pair.is_certain(); });
        uncertain > 0)
        text += fmt::format("; {} four times slower than is usual, too many to be looked at again",
                            uncertain == 1 ? "1 pair of hosts was"
                                           : fmt::format("{} pairs of hosts were", uncertain));
    if (best > 0) text += fmt::format("; two hosts exchange up to {:.2g} GB/s", best / 1e9);
    return text + "\n";
}

std::string to_json(const DoctorReport& report, const std::vector<Finding>& findings) {
    json::object all;
    all["schema"] = 1;
    all["took_s"] = seconds_of(report.took);
    json::array hosts, found, pairs;
    for (const HostReport& host : report.hosts) hosts.push_back(host_json(host));
    for (const Finding& finding : findings)
        found.push_back(
            json::object{{"topic", finding.topic},
                         {"hosts", json::array(finding.hosts.begin(), finding.hosts.end())},
                         {"text", finding.text}});
    for (const PairSpeed& pair : report.pairs)
        pairs.push_back(json::object{{"from", report.hosts[pair.from].name},
                                     {"to", report.hosts[pair.to].name},
                                     {"bytes_per_second", pair.bytes_per_second},
                                     {"why", pair.why}});
    all["hosts"] = std::move(hosts);
    all["findings"] = std::move(found);
    all["pairs"] = std::move(pairs);
    return as_utf8(json::serialize(all)) + "\n";  // hosts may say any bytes
}

}  // namespace dtrun::doctor
