#include "launcher/plan/host_shape.h"

#include "base/strings.h"
#include "launcher/transport/host_target.h"

#include <algorithm>

namespace dtrun::plan {
namespace {

int slots_of(const Host& host) {
    return host.slot_ids.empty() ? host.slots : static_cast<int>(host.slot_ids.size());
}

/// "s1,s2": nothing but names. A slot that is written, as in "s1:1", looks the same.
bool names_only(const HostList& hosts) {
    return std::ranges::all_of(hosts, [](const Host& host) {
        return host.slots == 1 && !host.slots_max && host.slot_ids.empty();
    });
}

std::string names_of(const HostList& hosts) {
    std::vector<std::string> names;
    for (const Host& host : hosts) names.push_back(host.name);
    return join_names(names);
}

/// Chooses the number of ranks of one host after the other.
class Counter {
public:
    Counter(const HostShape& shape, const Shapeable& given, const MachineFacts& here)
        : shape_(shape),
          given_(given),
          here_(here),
          slots_known_(given.named && !names_only(given.hosts)) {}

    Result<int> count(const Host& host) const {
        using enum HostShape::Count;
        const bool chosen = slots_known_ || !host.slot_ids.empty();
        switch (shape_.count) {
            case HostShape::Count::slots:  // by its whole name: the short one is a word of Qt's
                return slots_of(host);
            case number:
                return shape_.number;
            case automatic:
                return chosen ? slots_of(host) : first_known(host, {gpus(host), cpus(host)});
            case gpu:
                return chosen ? slots_of(host) : first_known(host, {gpus(host)});
            case cpu:
                return first_known(host, {cpus(host)});
            case accelerator:
                if (given_.named || !host.slot_ids.empty()) return slots_of(host);
                return first_known(host, {gpus(host), host.slots});
        }
        return fail(Errc::internal, "no such count");
    }

    /// Whether more ranks than the host's slots would be too many.
    bool is_limited(const Host& host) const { return slots_known_ || !host.slot_ids.empty(); }

private:
    const Allocation::Node* node(const Host& host) const {
        if (given_.allocation == nullptr) return nullptr;
        const HostList& all = given_.allocation->hosts;
        const auto found = std::ranges::find(all, host.name, &Host::name);
        if (found == all.end()) return nullptr;
        return &given_.allocation->nodes[static_cast<std::size_t>(found - all.begin())];
    }
    bool is_here(const Host& host) const {
        return transport::is_this_machine(host, transport::LookUp::own_names);
    }

    int gpus(const Host& host) const {
        const Allocation::Node* const known = node(host);
        if (known != nullptr && known->gpus > 0) return known->gpus;
        return is_here(host) && !is_accelerators() ? here_.gpus : 0;
    }
    /// Whether size_this_machine() has counted this machine's accelerators.
    bool is_accelerators() const { return shape_.count == HostShape::Count::accelerator; }
    int cpus(const Host& host) const {
        const Allocation::Node* const known = node(host);
        if (known != nullptr && known->cpus > 0) return known->cpus;
        return is_here(host) ? here_.cpus : 0;
    }
    Result<int> first_known(const Host& host, std::initializer_list<int> counts) const {
        const auto known = std::ranges::find_if(counts, [](int count) { return count > 0; });
        if (known != counts.end()) return *known;
        if (is_here(host))
            return fail(Errc::invalid_input, "{}: this machine shows no NVIDIA GPU",
                        shape_.count_flag);
        return fail(Errc::invalid_input,
                    "{}: what {} has is not known here; say how many ranks each host has, as in "
                    "-H {}:8, or give a number",
                    shape_.count_flag, host.name, host.name);
    }

    const HostShape& shape_;
    const Shapeable& given_;
    const MachineFacts& here_;
    bool slots_known_;
};

std::string hosts_there(int count) {
    return count == 1 ? "only one host is there" : fmt::format("{} hosts are there", count);
}

std::unexpected<Error> too_few(const HostShape& shape, const Shapeable& given) {
    const std::string instead = shape.one_command.empty() ? "" : "; " + shape.one_command;
    if (given.allocation != nullptr)
        return fail(Errc::invalid_input, "{}: {} has given this job {}: {}", shape.hosts_flag,
                    scheduler_name(given.allocation->scheduler), given.hosts.size(),
                    names_of(given.hosts));
    if (given.named)
        return fail(Errc::invalid_input, "{}, but {}: {}", shape.hosts_flag,
                    hosts_there(static_cast<int>(given.hosts.size())), names_of(given.hosts));
    const std::string by_hand = shape.by_hand.empty() ? "" : " (and " + shape.by_hand + ")";
    return fail(Errc::invalid_input,
                "{}{}, but no hosts are named, so there is this machine only{}", shape.hosts_flag,
                by_hand, instead);
}

/// Whether the user seems to run this command on every node: each node would run a whole job by
/// itself, without the others.
bool is_one_of_several(const HostShape& shape, const Shapeable& given) {
    const bool is_here = !given.named && given.allocation == nullptr;
    const bool asks_for_more = !shape.hosts_flag.empty() && shape.hosts_max > 1;
    return is_here && asks_for_more && !shape.meets_at.empty() &&
           !means_this_machine(shape.meets_at);
}

Result<void> check_first(const HostShape& shape, const Shapeable& given) {
    const bool is_bystander = given.allocation != nullptr && given.allocation->is_bystander;
    if (!shape.not_first || is_bystander) return {};
    return fail(Errc::invalid_input, "{}: dtrun is run once, not on every node; {}", shape.by_hand,
                shape.one_command);
}

}  // namespace

bool means_this_machine(const std::string& name) {
    Host host;
    host.name = name;
    return transport::is_this_machine(host, transport::LookUp::none) || transport::leads_here(name);
}

void size_this_machine(const HostShape& shape, Host& host, const MachineFacts& here) {
    if (!shape.devices_here.empty()) {
        host.slot_ids = shape.devices_here;
        host.slots = *std::ranges::max_element(host.slot_ids) + 1;
    } else if (shape.count == HostShape::Count::number) {
        host.slots = shape.number;
    } else if (shape.count == HostShape::Count::accelerator) {
        host.slots = here.gpus_present > 0 ? here.gpus_present : here.numa_nodes;
    }
}

Result<Shaped> shape_hosts(const HostShape& shape, Shapeable given, const MachineFacts& here) {
    if (auto done = check_first(shape, given); !done) return std::unexpected(done.error());
    const auto count = static_cast<int>(given.hosts.size());
    if (count < shape.hosts_min || is_one_of_several(shape, given)) return too_few(shape, given);
    Shaped shaped;
    if (!shape.elastic && count < shape.hosts_max && shape.hosts_max != kHostsMax)
        shaped.notes.push_back(fmt::format("{}: {}, and no more can join later", shape.hosts_flag,
                                           hosts_there(count)));
    const bool is_here = !given.named && given.allocation == nullptr;
    if (is_here && !shape.note_here.empty()) shaped.notes.push_back(shape.note_here);
    const Counter counter(shape, given, here);
    for (int i = 0; i < (shape.elastic ? count : std::min(count, shape.hosts_max)); ++i) {
        Host host = given.hosts[static_cast<std::size_t>(i)];
        const auto ranks = counter.count(host);
        if (!ranks) return std::unexpected(ranks.error());
        const int slots = slots_of(host);
        const bool too_many = *ranks > slots && counter.is_limited(host);
        if (too_many && !given.oversubscribe)
            return fail(Errc::invalid_input,
                        "{}, but {} has {} slot{}; lower it, give the host more, or "
                        "--oversubscribe",
                        shape.count_flag, host.name, slots, slots == 1 ? "" : "s");
        if (too_many) {
            host.slots_max = *ranks;  // its slots are used again
        } else {
            host.slots = *ranks;
            host.slots_max = *ranks;
            if (!host.slot_ids.empty())
                host.slot_ids.resize(static_cast<std::size_t>(std::min(*ranks, slots)));
        }
        shaped.world_size += *ranks;
        shaped.hosts.push_back(std::move(host));
    }
    if (shaped.world_size < 1 || shaped.world_size > kRanksMax)
        return fail(Errc::invalid_input, "{} ranks; a job has 1 to {}", shaped.world_size,
                    kRanksMax);
    return shaped;
}

}  // namespace dtrun::plan
