#include "launcher/doctor/examination.h"

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

std::map<std::string, int> holders_of_addresses(const Examination& examination) {
    std::map<std::string, int> holders;
    for (const HostReport& host : examination.hosts)
        if (host.seen)
            for (const HostAddress& address : host.seen->addresses) ++holders[address.address];
    return holders;
}

std::string_view HostReport::fact(std::string_view wanted) const {
    const auto found = std::ranges::find(facts, wanted, &HostFact::name);
    return found == facts.end() ? std::string_view() : found->value;
}

bool have_common_network(const HostReport& a, const HostReport& b) {
    if (!a.seen || !b.seen) return false;
    for (const HostAddress& one : a.seen->addresses)
        for (const HostAddress& other : b.seen->addresses)
            if (one.prefix > 0 && network_of(one) == network_of(other)) return true;
    return false;
}

std::vector<Door> doors_for(const Examination& examination, std::size_t from) {
    std::vector<Door> doors;
    const HostReport& self = examination.hosts[from];
    if (!self.seen) return doors;
    const auto holders = holders_of_addresses(examination);
    std::vector<std::string> networks;
    for (const HostAddress& address : self.seen->addresses) networks.push_back(network_of(address));
    for (std::size_t to = 0; to < examination.hosts.size(); ++to) {
        const HostReport& other = examination.hosts[to];
        if (to == from || !other.seen) continue;
        const bool common = have_common_network(self, other);
        for (const HostAddress& address : other.seen->addresses)
            if (holders.at(address.address) == 1 &&
                (!common || std::ranges::find(networks, network_of(address)) != networks.end()))
                doors.push_back({other.name, address.address, other.seen->port});
    }
    return doors;
}

std::optional<Door> open_door(const Examination& examination, std::size_t from, std::size_t to) {
    const HostReport& self = examination.hosts[from];
    if (!self.visited) return {};
    for (const Door& door : doors_for(examination, from)) {
        if (door.host != examination.hosts[to].name) continue;
        const auto failed = std::ranges::find(*self.visited, door, &VisitFailure::door);
        if (failed == self.visited->end()) return door;
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
