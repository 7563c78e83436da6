// A rank for dtrun to start: every operation of a backend against the reference, over the real
// network, between all of the ranks, all but one, ...
// group_ranks BACKEND [thorough]
#include "collectives/backends/backends.h"
#include "collectives/communicator/host_address.h"
#include "collectives/communicator/worker_store.h"
#include "collectives/host/host_topology.h"
#include "tests/collectives/support/group_checks.h"
#include "worker/include/dtrun.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

/// A number for the host of each rank.
Result<std::vector<std::uint32_t>> meet_hosts(dtrun_worker* worker, WorkerStore& store) {
    const KeyStore::Pair own(fmt::format("group_ranks/host/{}", dtrun_rank(worker)),
                             dtrun_host_name(worker));
    if (auto said = store.set({&own, 1}); !said) return std::unexpected(said.error());
    std::vector<std::string> keys;
    for (std::uint32_t rank = 0; rank < dtrun_world_size(worker); ++rank)
        keys.push_back(fmt::format("group_ranks/host/{}", rank));
    const auto names = store.get(keys, std::chrono::seconds(30));
    if (!names) return std::unexpected(names.error());
    std::vector<std::uint32_t> hosts;
    for (const std::string& name : *names)
        hosts.push_back(
            static_cast<std::uint32_t>(std::ranges::find(*names, name) - names->begin()));
    return hosts;
}

/// Between the ranks below `size`, of which this is one.
Result<void> check_between(dtrun_worker* worker, const Backend& backend, WorkerStore& store,
                           std::vector<std::uint32_t> hosts, std::uint32_t size, bool thorough) {
    GroupSpec spec;
    spec.rank = dtrun_rank(worker);
    spec.size = size;
    spec.members.resize(spec.size);
    std::iota(spec.members.begin(), spec.members.end(), 0u);
    hosts.resize(size);
    spec.topology = Topology(spec.rank, std::move(hosts));
    spec.store = &store;
    spec.prefix = fmt::format("group_ranks/{}/", size);
    spec.generation = dtrun_generation(worker);
    spec.interfaces = interfaces_from_environment();
    spec.address = own_address(spec.interfaces);
    spec.local_rank = dtrun_local_rank(worker);
    auto group = backend.connect(spec);
    if (!group) return std::unexpected(group.error());
    const auto host_topology = find_host_topology(spec, **group);
    if (!host_topology) return std::unexpected(host_topology.error());
    if (auto done = (*group)->set_topology(*host_topology); !done) return done;
    CheckOptions options;
    options.thorough = thorough;
    // Sizes have been tried with all ranks.
    if (size < dtrun_world_size(worker) && !thorough) {
        options.counts = {1027};
        options.large_bytes = 0;
    }
    return check_group(**group, spec, options);
}

Result<void> check(dtrun_worker* worker, const std::string& name, bool thorough) {
    WorkerStore store(worker);
    const auto backend = load_backend(name);
    if (!backend) return std::unexpected(backend.error());
    const auto hosts = meet_hosts(worker, store);
    if (!hosts) return std::unexpected(hosts.error());
    // All of them first, because MPI begins with all.
    for (std::uint32_t size = dtrun_world_size(worker); size > dtrun_rank(worker); --size) {
        auto checked = check_between(worker, *backend, store, *hosts, size, thorough);
        if (!checked) return checked;
    }
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    dtrun_worker* worker = nullptr;
    if (dtrun_init(nullptr, &worker) != DTRUN_OK) {
        std::fprintf(stderr, "%s\n", dtrun_error_text());
        return 1;
    }
    const auto checked = check(worker, argv[1], argc > 2);
    if (checked)
        std::printf("ok\n");
    else
        std::fprintf(stderr, "%s\n", checked.error().message.c_str());
    std::fflush(stdout);
    dtrun_finalize(worker, checked ? nullptr : "a check failed");
    return checked ? 0 : 1;
}
