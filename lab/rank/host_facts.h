#pragma once

#include "lab/records.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab::rank {

/// Looks at this host: files, libraries and nvidia-smi; takes seconds at worst. Libraries are
/// loaded by processes of their own (version-of NAME of this program), so that they do no harm to
/// this one.
/// \param python  by which versions of Python's packages are found, in PATH or with a path
HostRecord collect_host_facts(const std::string& host, const std::string& python = "python3");

/// The version of "cuda", "pmix", or of a backend's library, on this host; "" if it is not there.
std::string version_of(std::string_view name);
/// The same, as another process of this program finds it: some libraries change what loads them.
std::string version_elsewhere(std::string_view name,
                              std::chrono::milliseconds limit = std::chrono::seconds(10));

/// The name of the system in /etc/os-release: "Debian GNU/Linux 12 (bookworm)"
std::string parse_os(std::string_view os_release);
/// The model of the first processor in /proc/cpuinfo.
std::string parse_cpu(std::string_view cpuinfo);
/// MemTotal of /proc/meminfo in bytes.
std::uint64_t parse_memory(std::string_view meminfo);
/// The name of a vendor's device in pci.ids, both given as "0x15b3"; if it is not there, its
/// number, with the vendor's name (or number, if unknown) in front.
std::string device_model(std::string_view pci_ids, std::string_view vendor,
                         std::string_view device);
/// Network interfaces of a folder such as /sys/class/net.
/// \param pci_ids  text of that file
std::vector<NicRecord> list_nics(const std::string& folder, std::string_view pci_ids);
/// Speed of the network interface that a text names ("tcp over eth0 (10.0.0.1)") in a folder such
/// as /sys/class/net, in Mbit/s; kUnknown: it names none, or the speed is not known. Of veth and
/// tun interfaces, which report a speed that means nothing, it is not.
double line_rate_of(std::string_view transport, const std::string& folder);
/// Parses lines of `nvidia-smi --query-gpu=name,memory.total,driver_version
/// --format=csv,noheader,nounits`
void parse_gpus(std::string_view csv, HostRecord& facts);
/// The kinds of links in the matrix of `nvidia-smi topo -m`: "NVLink (NV18)"; "" of one GPU.
std::string parse_gpu_links(std::string_view matrix);

}  // namespace dtrun::lab::rank
