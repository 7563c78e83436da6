#include "launcher/doctor/doctor_report.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

namespace dtrun::doctor {
std::string network_of(const HostAddress& address) {
    std::array<unsigned char, 16> bytes{};
    const bool is_v6 = address.address.find(':') != std::string::npos;
    if (::inet_pton(is_v6 ? AF_INET6 : AF_INET, address.address.c_str(), bytes.data()) != 1)
        return "";
    std::string network(1, is_v6 ? '6' : '4');
    std::uint32_t bits = address.prefix;
    for (std::size_t i = 0; i < (is_v6 ? 16 : 4); ++i) {
        const std::uint32_t kept = std::min<std::uint32_t>(bits, 8);
        bits -= kept;
        network += static_cast<char>(bytes[i] & (0xff00 >> kept));
    }
    return fmt::format("{}/{}", network, address.prefix);
}

std::map<std::string, int> holders_of_addresses(const DoctorReport& report) {
    std::map<std::string, int> holders;
    for (const HostReport& host : report.hosts)
        if (host.seen)
            for (const HostAddress& address : host.seen->addresses) ++holders[address.address];
    return holders;
}

std::string_view HostReport::fact(std::string_view wanted) const {
    const auto found = std::ranges::find(facts, wanted, &HostFact::name);
    return found == facts.end() ? std::string_view() : found->value;
}

std::string_view trouble_of(std::string_view fact) {
    if (!fact.starts_with('(') || !fact.ends_with(')')) return {};
    return fact.substr(1, fact.size() - 2);
}

bool HostReport::knows(std::string_view wanted) const {
    constexpr std::array<std::string_view, 3> kOfPython{"torch", "mpi4py", "nccl"};
    if (std::ranges::find(kOfPython, wanted) != kOfPython.end()) wanted = "python";
    return !facts.empty() && trouble_of(fact(wanted)).empty();
}

bool have_common_network(const HostReport& a, const HostReport& b) {
    if (!a.seen || !b.seen) return false;
    for (const HostAddress& one : a.seen->addresses)
        for (const HostAddress& other : b.seen->addresses)
            if (one.prefix > 0 && network_of(one) == network_of(other)) return true;
    return false;
}

std::vector<ProbeTarget> targets_for(const DoctorReport& report, std::size_t from) {
    std::vector<ProbeTarget> targets;
    const HostReport& self = report.hosts[from];
    if (!self.seen) return targets;
    const auto holders = holders_of_addresses(report);
    std::vector<std::string> networks;
    for (const HostAddress& address : self.seen->addresses) networks.push_back(network_of(address));
    for (std::size_t to = 0; to < report.hosts.size(); ++to) {
        const HostReport& other = report.hosts[to];
        if (to == from || !other.seen) continue;
        const bool common = have_common_network(self, other);
        for (const HostAddress& address : other.seen->addresses)
            if (holders.at(address.address) == 1 &&
                (!common || std::ranges::find(networks, network_of(address)) != networks.end()))
                targets.push_back({other.name, address.address, other.seen->port});
    }
    return targets;
}

std::optional<ProbeTarget> open_target(const DoctorReport& report, std::size_t from,
                                       std::size_t to) {
    const HostReport& self = report.hosts[from];
    if (!self.visited) return {};
    for (const ProbeTarget& target : targets_for(report, from)) {
        if (target.host != report.hosts[to].name) continue;
        const auto failed = std::ranges::find(*self.visited, target, &VisitFailure::target);
        if (failed == self.visited->end()) return target;
    }
    return {};
}

std::vector<std::vector<std::pair<std::size_t, std::size_t>>> rounds_of(
    const std::vector<std::size_t>& hosts, std::size_t rounds_max) {
    // The circle method: one stays, all others move on by one place each round.
    std::vector<std::size_t> circle(hosts.size() + hosts.size() % 2);
    std::iota(circle.begin(), circle.end(), std::size_t{0});
    std::vector<std::vector<std::pair<std::size_t, std::size_t>>> rounds;
    for (std::size_t round = 0; round + 1 < circle.size() && round < rounds_max; ++round) {
        auto& pairs = rounds.emplace_back();
        for (std::size_t i = 0; i < circle.size() / 2; ++i) {
            const std::size_t a = circle[i], b = circle[circle.size() - 1 - i];
            if (a < hosts.size() && b < hosts.size()) pairs.emplace_back(hosts[a], hosts[b]);
        }
        std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
    }
    return rounds;
}

}  // namespace dtrun::doctor
