#include "collectives/backends/choose.h"

#include "collectives/backends/backend_table.h"
#include "collectives/backends/backends.h"

#include <algorithm>
#include <bit>

namespace dtrun::collectives {
namespace {

constexpr char kEnd = '\0';
/// Begins what a rank tells. Ranks from before there was a number begin with their host's name.
constexpr std::string_view kBegin = "dtrun collectives ";

/// The next field of `bytes`, which are cut off behind it.
Result<std::string> take_field(std::string_view& bytes) {
    const std::size_t end = bytes.find(kEnd);
    if (end == bytes.npos) return fail(Errc::invalid_input, "a rank's facts are cut off");
    std::string field(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
    return field;
}

std::string who(std::span<const Member> members, std::size_t rank) {
    return fmt::format("rank {} on {}", rank, members[rank].host);
}

/// The reason why not all ranks have a backend; empty if they have.
std::string missing(std::span<const Member> members, const std::string& backend) {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
        const auto& offers = members[rank].backends;
        const auto offer =
            std::ranges::find(offers, backend, &std::pair<std::string, Availability>::first);
        if (offer == offers.end()) return who(members, rank) + " has not heard of it";
        if (!offer->second.available)
            return fmt::format("{}: {}", who(members, rank), offer->second.why);
    }
    return {};
}

Result<void> check_protocols(std::span<const Member> members) {
    for (std::size_t rank = 1; rank < members.size(); ++rank)
        if (members[rank].protocol != members[0].protocol)
            return fail(
                Errc::denied,
                "{} has another version of dtrun than {}: their collectives' protocols are {} "
                "and {}; install the same version on all hosts",
                who(members, 0), who(members, rank), members[0].protocol, members[rank].protocol);
    return {};
}

/// The one backend that ranks ask for; "auto" if none does.
Result<std::string> common_wish(std::span<const Member> members) {
    std::size_t first = 0;
    for (std::size_t rank = 1; rank < members.size(); ++rank) {
        if (members[rank].device != members[0].device)
            return fail(Errc::denied, "arrays of {} are in memory of the {}, those of {} are not",
                        who(members, 0), members[0].device ? "GPU" : "host", who(members, rank));
        if (members[rank].wish != members[first].wish)
            return fail(Errc::denied, "{} asks for the backend \"{}\", {} for \"{}\"",
                        who(members, first), members[first].wish, who(members, rank),
                        members[rank].wish);
    }
    return members[0].wish;
}

/// Between hosts that all have such a network, MPI makes use of it, and dtrun's own backend does not.
bool want_fabric(std::span<const Member> members) {
    const bool several = std::ranges::any_of(
        members, [&](const Member& member) { return member.host != members[0].host; });
    return several && std::ranges::all_of(members, &Member::fabric);
}

}  // namespace

std::string own_protocol() {
    constexpr bool kLittle = std::endian::native == std::endian::little;
    return fmt::format("{}, {} endian", kProtocol, kLittle ? "little" : "big");
}

std::string encode(const Member& member) {
    std::string bytes;
    const auto put = [&bytes](std::string_view field) {
        for (const char c : field)
            if (c != kEnd) bytes += c;
        bytes += kEnd;
    };
    put(std::string(kBegin) + member.protocol);
    put(member.host);
    put(member.address);
    put(member.wish);
    put(member.device ? "1" : "");
    put(member.fabric ? "1" : "");
    for (const auto& [name, offer] : member.backends) {
        put(name);
        put(offer.available ? "1" : "");
        put(offer.why);
    }
    return bytes;
}

Result<Member> decode_member(std::string_view bytes) {
    Member member;
    auto first = take_field(bytes);
    if (!first) return std::unexpected(first.error());
    if (!first->starts_with(kBegin)) {
        member.protocol = "1";
        member.host = std::move(*first);
        return member;
    }
    member.protocol = first->substr(kBegin.size());
    if (member.protocol != own_protocol()) {
        auto host = take_field(bytes);
        if (!host) return std::unexpected(host.error());
        member.host = std::move(*host);
        return member;
    }
    std::string device, fabric;
    for (std::string* const field :
         {&member.host, &member.address, &member.wish, &device, &fabric}) {
        auto taken = take_field(bytes);
        if (!taken) return std::unexpected(taken.error());
        *field = std::move(*taken);
    }
    member.device = !device.empty();
    member.fabric = !fabric.empty();
    while (!bytes.empty()) {
        auto name = take_field(bytes);
        auto available = take_field(bytes);
        auto why = take_field(bytes);
        if (!why) return std::unexpected(why.error());
        member.backends.push_back({std::move(*name), {!available->empty(), std::move(*why)}});
    }
    return member;
}

std::vector<std::string> backend_order(bool device, bool lasting, bool encrypt) {
    std::vector<std::string> order;
    std::vector<std::string> last;  // backends that do not survive a change of the membership
    for (const BackendRow& row : kBackends) {
        if (row.chosen != BackendRow::Chosen::automatic || row.on_device() != device) continue;
        if (encrypt && !device && row.name != kOwnBackend) continue;
        const bool is_fixed = row.membership == BackendRow::Membership::fixed;
        (lasting && is_fixed ? last : order).emplace_back(row.name);
    }
    order.insert(order.end(), last.begin(), last.end());
    return order;
}

Result<Choice> choose_backend(std::span<const Member> members, std::span<const std::string> order) {
    if (auto checked = check_protocols(members); !checked) return std::unexpected(checked.error());
    const auto wish = common_wish(members);
    if (!wish) return std::unexpected(wish.error());
    if (*wish != "auto") {
        if (members[0].device && std::ranges::find(order, *wish) == order.end())
            return fail(Errc::invalid_input,
                        "the backend \"{}\" takes arrays in memory of the host; those in memory of "
                        "the GPU need nccl (device_memory)",
                        *wish);
        const BackendRow* const row = find_backend(*wish);
        if (!members[0].device && row != nullptr && row->on_device())
            return fail(Errc::invalid_input,
                        "the backend \"{}\" takes arrays in memory of the GPU: say so "
                        "(device_memory)",
                        *wish);
        const std::string lacking = missing(members, *wish);
        if (!lacking.empty())
            return fail(Errc::not_found, "the backend \"{}\" is not there: {}", *wish, lacking);
        return Choice{*wish, "asked for"};
    }
    std::vector<std::string> wanted(order.begin(), order.end());
    std::string others;
    if (wanted.size() > 1 && wanted[0] == kOwnBackend && wanted[1] == "mpi" &&
        want_fabric(members)) {
        std::swap(wanted[0], wanted[1]);
        others = " and that uses InfiniBand";
    }
    for (const std::string& backend : wanted) {
        const std::string lacking = missing(members, backend);
        if (lacking.empty()) return Choice{backend, "the best that every rank has" + others};
        others += fmt::format("; not {} ({})", backend, lacking);
    }
    return fail(Errc::not_found, "no backend is there for all ranks{}", others);
}

}  // namespace dtrun::collectives
