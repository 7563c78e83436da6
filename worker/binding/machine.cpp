#include "worker/binding/machine.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace dtrun::binding {
namespace {

/// While one lives, hwloc starts without its plug-ins: they are built for another C library than the one in
/// a static agent, and those for OpenCL and X start drivers. Linux tells the rest.
///
/// Thread: it changes the environment, so no other thread may read that.
class WithoutPlugins {
public:
    WithoutPlugins() {
        if (const char* const value = std::getenv(kVariable)) before_ = value;
        ::setenv(kVariable, "/dev/null", 1);
    }
    ~WithoutPlugins() {
        if (before_)
            ::setenv(kVariable, before_->c_str(), 1);
        else
            ::unsetenv(kVariable);
    }
    WithoutPlugins(const WithoutPlugins&) = delete;
    WithoutPlugins& operator=(const WithoutPlugins&) = delete;

private:
    static constexpr const char* kVariable = "HWLOC_PLUGINS_PATH";
    std::optional<std::string> before_;
};

struct DestroyTopology {
    void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

CpuList list_of(hwloc_const_cpuset_t set) {
    CpuList cpus;
    if (set == nullptr) return cpus;
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
        cpus.push_back(static_cast<unsigned>(cpu));
    return cpus;
}

/// The number of the object of this type that has a core; `otherwise` where there is none.
unsigned index_above(hwloc_topology_t topology, hwloc_obj_t core, hwloc_obj_type_t type,
                     unsigned otherwise) {
    const hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(topology, type, core);
    return above == nullptr ? otherwise : above->logical_index;
}

unsigned numa_of(hwloc_obj_t core) {
    const int node = core->nodeset == nullptr ? -1 : hwloc_bitmap_first(core->nodeset);
    return node < 0 ? 0 : static_cast<unsigned>(node);
}

/// Cores by place. A machine that does not tell its cores has one for each hardware thread.
void add_cores(hwloc_topology_t topology, Machine& machine) {
    const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
    const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    std::vector<unsigned> in_socket;
    for (hwloc_obj_t object = nullptr;
         (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
        Core core;
        core.cpus = list_of(object->cpuset);
        core.socket = index_above(topology, object, HWLOC_OBJ_PACKAGE, 0);
        core.l3 = index_above(topology, object, HWLOC_OBJ_L3CACHE, core.socket);
        core.numa = numa_of(object);
        if (core.socket >= in_socket.size()) in_socket.resize(core.socket + 1);
        core.number = in_socket[core.socket]++;
        machine.cores.push_back(std::move(core));
    }
    machine.sockets =
        static_cast<unsigned>(std::max(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE), 1));
    machine.numa_nodes =
        static_cast<unsigned>(std::max(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE), 1));
}

Device describe(hwloc_topology_t topology, hwloc_obj_t pci, std::string name) {
    Device device;
    device.name = std::move(name);
    if (const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, pci))
        device.near = list_of(near->cpuset);
    for (hwloc_obj_t above = pci; above != nullptr; above = above->parent)
        device.path.push_back(above->gp_index);
    std::ranges::reverse(device.path);
    return device;
}

/// Whether it computes: no chip of a server's board that only draws its console.
bool is_gpu(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
    constexpr unsigned kVga = 0x0300, kAccelerator = 0x1200;
    constexpr unsigned kNvidia = 0x10de, kAmd = 0x1002;
    const bool is_display = (pci.class_id & 0xff00u) == kVga;
    const bool is_console =
        pci.class_id == kVga && pci.vendor_id != kNvidia && pci.vendor_id != kAmd;
    return pci.class_id == kAccelerator || (is_display && !is_console);
}

void add_gpus(hwloc_topology_t topology, Machine& machine) {
    for (hwloc_obj_t object = nullptr;
         (object = hwloc_get_next_pcidev(topology, object)) != nullptr;) {
        const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci = object->attr->pcidev;
        if (is_gpu(pci))
            machine.gpus.push_back(
                describe(topology, object,
                         fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(pci.domain),
                                     static_cast<unsigned>(pci.bus), static_cast<unsigned>(pci.dev),
                                     static_cast<unsigned>(pci.func))));
    }
}

hwloc_obj_t pci_above(hwloc_obj_t object) {
    while (object != nullptr && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
    return object;
}

void add_nics(hwloc_topology_t topology, hwloc_obj_osdev_type_t type, Machine& machine) {
    for (hwloc_obj_t object = nullptr;
         (object = hwloc_get_next_osdev(topology, object)) != nullptr;) {
        if (object->attr->osdev.type != type || object->name == nullptr) continue;
        if (const hwloc_obj_t pci = pci_above(object))
            machine.nics.push_back(describe(topology, pci, object->name));
    }
}

Result<Topology> new_topology() {
    const WithoutPlugins without_plugins;
    hwloc_topology_t made = nullptr;
    if (hwloc_topology_init(&made) != 0) return fail(Errc::internal, "hwloc cannot start");
    hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    return Topology(made);
}

Result<Machine> load(const Topology& topology) {
    if (hwloc_topology_load(topology.get()) != 0)
        return fail(Errc::internal, "hwloc cannot tell what this machine has");
    Machine machine;
    machine.is_this_machine = hwloc_topology_is_thissystem(topology.get()) != 0;
    add_cores(topology.get(), machine);
    add_gpus(topology.get(), machine);
    add_nics(topology.get(), HWLOC_OBJ_OSDEV_OPENFABRICS, machine);
    add_nics(topology.get(), HWLOC_OBJ_OSDEV_NETWORK, machine);
    return machine;
}

}  // namespace

CpuList Machine::cpus() const {
    CpuList all;
    for (const Core& core : cores) all = all_cpus(all, core.cpus);
    return all;
}

Machine restrict_to(Machine machine, const CpuList& cpus) {
    for (Core& core : machine.cores) core.cpus = common_cpus(core.cpus, cpus);
    std::erase_if(machine.cores, [](const Core& core) { return core.cpus.empty(); });
    return machine;
}

Result<Machine> read_machine() {
    auto topology = new_topology();
    if (!topology) return std::unexpected(topology.error());
    auto machine = load(*topology);
    if (!machine || !machine->is_this_machine) return machine;
    const auto allowed = own_cpus();
    if (!allowed) return std::unexpected(allowed.error());
    return restrict_to(std::move(*machine), *allowed);
}

Result<Machine> synthetic_machine(const std::string& text) {
    const auto topology = new_topology();
    if (!topology) return std::unexpected(topology.error());
    if (hwloc_topology_set_synthetic(topology->get(), text.c_str()) != 0)
        return fail(Errc::invalid_input, "'{}' describes no machine", text);
    return load(*topology);
}

Result<Machine> machine_of_file(const std::string& path) {
    const auto topology = new_topology();
    if (!topology) return std::unexpected(topology.error());
    if (hwloc_topology_set_xml(topology->get(), path.c_str()) != 0)
        return fail(Errc::invalid_input, "{}: describes no machine", path);
    return load(*topology);
}

}  // namespace dtrun::binding
