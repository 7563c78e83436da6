#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::lab::rank {

/// What the environment table says of a host. Texts are empty where nothing was found.
struct HostFacts {
    struct Nic {
        std::string name, model, driver;
        std::int64_t speed_mbit = -1;  ///< -1: it does not tell
    };
    struct Gpu {
        std::string model;
        std::uint64_t memory_bytes = 0;
    };

    std::string host, os, kernel, cpu;
    std::uint32_t cores = 0;
    std::uint64_t memory_bytes = 0;
    std::vector<Nic> nics;  ///< those with a device, else all but the loopback
    std::vector<Gpu> gpus;
    std::string gpu_links;  ///< how GPUs reach each other: "NVLink (NV18)"
    std::string driver;     ///< of the GPUs
    std::string cuda, nccl, mpi, gloo, oneccl, python, torch;  ///< versions
};

/// Looks at this host: files, libraries and nvidia-smi; takes seconds at worst. Libraries are loaded
/// by processes of their own (version-of NAME of this program), so that they do no harm to this one.
HostFacts collect_host_facts(const std::string& host);

/// A line for standard output.
std::string to_json(const HostFacts& facts);

/// The version of "cuda", or of a backend's library, on this host; "" if it is not there.
std::string version_of(std::string_view name);

/// Of /etc/os-release: "Debian GNU/Linux 12 (bookworm)"
std::string parse_os(std::string_view os_release);
/// Of /proc/cpuinfo: the model of the first processor.
std::string parse_cpu(std::string_view cpuinfo);
/// Of /proc/meminfo: MemTotal in bytes.
std::uint64_t parse_memory(std::string_view meminfo);
/// Of pci.ids: the name of a vendor's device, both as "0x15b3"; without the file or the device the
/// numbers, the vendor's name if it is known.
std::string device_model(std::string_view pci_ids, std::string_view vendor,
                         std::string_view device);
/// Network interfaces of a folder such as /sys/class/net.
/// \param pci_ids  text of that file
std::vector<HostFacts::Nic> list_nics(const std::string& folder, std::string_view pci_ids);
/// Lines of `nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits`
void parse_gpus(std::string_view csv, HostFacts& facts);
/// The kinds of links in the matrix of `nvidia-smi topo -m`: "NVLink (NV18)"; "" of one GPU.
std::string parse_gpu_links(std::string_view matrix);

}  // namespace dtrun::lab::rank
