#include "collectives/backends/nccl/facts.h"

#include "base/interfaces.h"
#include "base/strings.h"

#include <strings.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

namespace dtrun::collectives::nccl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLogBytesMax = 16 << 20;

std::string host_of(std::string_view place) {
    return std::string(place.substr(0, place.find(' ')));
}

std::string gpu_of(std::string_view place) {
    const auto space = place.find(' ');
    return space == place.npos ? std::string() : std::string(place.substr(space + 1));
}

/// The path of NCCL's log of this process; "" if it writes none.
std::string log_path(const HostView& host) {
    const std::string level = host.environment("NCCL_DEBUG");
    const std::string pattern = host.environment("NCCL_DEBUG_FILE");
    if (::strcasecmp(level.c_str(), "INFO") != 0 && ::strcasecmp(level.c_str(), "TRACE") != 0)
        return {};
    std::string path;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '%' || i + 1 == pattern.size()) {
            path += pattern[i];
            continue;
        }
        switch (pattern[++i]) {
            case 'h':
                path += split(host_name(), '.').front();
                break;
            case 'p':
                path += std::to_string(::getpid());
                break;
            default:
                path += pattern[i];
        }
    }
    return path;
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text;
    for (std::istreambuf_iterator<char> at(file), end; at != end && text.size() < kLogBytesMax;
         ++at)
        text += *at;
    return text;
}

bool exists(const HostView& host, std::string_view path) {
    std::error_code ignored;
    return fs::exists(host.root + std::string(path), ignored);
}

bool has_entries(const HostView& host, std::string_view path) {
    std::error_code ignored;
    return fs::directory_iterator(host.root + std::string(path), ignored) !=
           fs::directory_iterator();
}

/// The first of these settings that turns something off, as "NAME=value".
std::optional<std::string> turned_off(const HostView& host, const char* disable,
                                      const char* level) {
    if (const std::string value = host.environment(disable); !value.empty() && value != "0")
        return fmt::format("{}={}", disable, value);
    if (const std::string value = host.environment(level); value == "LOC" || value == "0")
        return fmt::format("{}={}", level, value);
    return std::nullopt;
}

bool any_contains(const std::vector<std::string>& roads, std::string_view part) {
    return std::any_of(roads.begin(), roads.end(), [&](const std::string& road) {
        return road.find(part) != std::string::npos;
    });
}

/// The state of GPUDirect P2P, between GPUs of one host.
std::string peer_to_peer(const NcclLibrary& library, const HostView& host, int device,
                         const std::string& own, std::span<const std::string> others,
                         const std::vector<std::string>& roads) {
    if (any_contains(roads, "P2P/")) return "yes";
    if (const auto off = turned_off(host, "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"))
        return "no: " + *off;
    std::size_t here = 0;
    std::size_t unseen = 0;
    for (const std::string& other : others) {
        if (host_of(other) != host_of(own)) continue;
        ++here;
        int index = -1;
        int can = 0;
        if (library.gpu.device_get_by_pci_bus_id(&index, gpu_of(other).c_str()) != kGpuSuccess) {
            library.gpu.get_last_error();
            ++unseen;
            continue;
        }
        library.gpu.device_can_access_peer(&can, device, index);
        if (can == 0)
            return fmt::format("no: the GPUs {} and {} cannot reach each other's memory",
                               gpu_of(own), gpu_of(other));
    }
    if (here == 0) return "no: no other rank on this host";
    if (!roads.empty()) return "no: NCCL goes through " + roads.front();
    if (unseen > 0)
        return "unknown: this process does not see the other ranks' GPUs (CUDA_VISIBLE_DEVICES)";
    return "yes";
}

/// The state of GPUDirect RDMA, between GPUs and the network.
std::string remote_access(const HostView& host, const std::string& own,
                          std::span<const std::string> others,
                          const std::vector<std::string>& roads) {
    if (any_contains(roads, "GDRDMA")) return "yes";
    if (std::all_of(others.begin(), others.end(),
                    [&](const std::string& other) { return host_of(other) == host_of(own); }))
        return "no: no rank on another host";
    if (const auto off = turned_off(host, "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL"))
        return "no: " + *off;
    if (const std::string net = host.environment("NCCL_NET");
        ::strcasecmp(net.c_str(), "Socket") == 0)
        return "no: NCCL_NET=" + net;
    if (!has_entries(host, "/sys/class/infiniband"))
        return "no: no network card with RDMA (/sys/class/infiniband is empty)";
    // What lets the card reach the GPU's memory: a module, or DMA-BUF, which comes with NVIDIA's open
    // kernel modules; AMD's have an interface of their own.
    const bool module = exists(host, "/sys/module/nvidia_peermem") ||
                        exists(host, "/sys/kernel/mm/memory_peers/amdkfd");
    const bool open = read_file(host.root + "/proc/driver/nvidia/version").find("Open Kernel") !=
                      std::string::npos;
    if (!module && !open)
        return "no: neither the module nvidia_peermem nor DMA-BUF (of NVIDIA's open kernel "
               "modules)";
    for (const std::string& road : roads)
        if (road.starts_with("NET/")) return "no: NCCL goes through " + road + " without it";
    return fmt::format("yes, if NCCL makes use of {}", module ? "nvidia_peermem" : "DMA-BUF");
}

}  // namespace

HostView this_host() {
    return {[](const char* name) {
                const char* const value = std::getenv(name);
                return value == nullptr ? std::string() : std::string(value);
            },
            ""};
}

std::vector<std::string> roads_of(std::string_view log) {
    std::vector<std::string> roads;
    constexpr std::string_view kVia = " via ";
    for (auto at = log.find(kVia); at != log.npos; at = log.find(kVia, at)) {
        at += kVia.size();
        const std::string_view word = log.substr(at, log.find_first_of(" \n", at) - at);
        // "NET/IB/0(3)/GDRDMA/Shared": numbers of cards and of what is shared are left out.
        std::string road;
        for (std::size_t begin = 0; begin < word.size();) {
            const auto end = std::min(word.find('/', begin), word.size());
            const std::string_view part = word.substr(begin, end - begin);
            begin = end + 1;
            if (part.empty() || (part[0] >= '0' && part[0] <= '9') || part == "Shared") continue;
            road += (road.empty() ? "" : "/") + std::string(part);
        }
        const bool known =
            road.starts_with("P2P/") || road.starts_with("SHM/") || road.starts_with("NET/");
        if (known && std::find(roads.begin(), roads.end(), road) == roads.end())
            roads.push_back(std::move(road));
    }
    return roads;
}

GroupFacts nccl_facts(const NcclLibrary& library, const HostView& host, int device,
                      const std::string& own, std::span<const std::string> others) {
    GroupFacts facts;
    facts.version = library.name();
    const std::string log = log_path(host);
    const std::vector<std::string> roads =
        log.empty() ? std::vector<std::string>() : roads_of(read_file(log));
    for (const std::string& road : roads)
        facts.transport += (facts.transport.empty() ? "" : ", ") + road;
    std::string interfaces = host.environment("NCCL_SOCKET_IFNAME");
    if (interfaces.starts_with('=')) interfaces.erase(0, 1);
    if (facts.transport.empty())
        facts.transport = interfaces.empty()
                              ? "as NCCL chooses"
                              : fmt::format("as NCCL chooses, sockets over {}", interfaces);
    facts.details = {
        {"GPU", fmt::format("{} ({})", device, gpu_of(own))},
        {"GPUDirect P2P", peer_to_peer(library, host, device, own, others, roads)},
        {"GPUDirect RDMA", remote_access(host, own, others, roads)},
    };
    return facts;
}

}  // namespace dtrun::collectives::nccl
