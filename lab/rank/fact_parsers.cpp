#include "base/strings.h"
#include "lab/rank/host_facts.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>

namespace dtrun::lab::rank {

namespace {

/// What stands behind the colon of the first line "key   : value".
std::string_view value_of(std::string_view text, std::string_view key) {
    for (const std::string_view line : split(text, '\n')) {
        const std::size_t colon = line.find(':');
        if (colon != line.npos && trim(line.substr(0, colon)) == key)
            return trim(line.substr(colon + 1));
    }
    return {};
}

std::string_view without_0x(std::string_view number) {
    return number.starts_with("0x") ? number.substr(2) : number;
}

/// Makers of network cards, for hosts without pci.ids.
std::string_view vendor_name(std::string_view number) {
    constexpr std::pair<std::string_view, std::string_view> kVendors[] = {
        {"14e4", "Broadcom"}, {"15b3", "Mellanox"}, {"17d5", "Neterion"}, {"1924", "Solarflare"},
        {"1af4", "virtio"},   {"1d0f", "Amazon"},   {"1ae0", "Google"},   {"8086", "Intel"},
        {"10ec", "Realtek"},  {"1077", "QLogic"},   {"1425", "Chelsio"},  {"15ad", "VMware"}};
    for (const auto& [known, name] : kVendors)
        if (known == number) return name;
    return {};
}

/// Removes the escape sequences of bold letters.
std::string without_escapes(std::string_view text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\x1b') {
            plain += text[i];
            continue;
        }
        while (i < text.size() && text[i] != 'm') ++i;
    }
    return plain;
}

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != line.npos;) {
        const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
        words.push_back(line.substr(at, end - at));
        at = end;
    }
    return words;
}

std::string describe_link(std::string_view kind) {
    constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
        {"PIX", "one PCIe bridge"},
        {"PXB", "several PCIe bridges"},
        {"PHB", "a PCIe host bridge"},
        {"NODE", "PCIe host bridges of a NUMA node"},
        {"SYS", "the link between NUMA nodes"}};
    if (kind.starts_with("NV")) return fmt::format("NVLink ({})", kind);
    for (const auto& [known, words] : kKinds)
        if (known == kind) return fmt::format("{} ({})", words, kind);
    return std::string(kind);
}

}  // namespace

std::string parse_os(std::string_view os_release) {
    for (const std::string_view line : split(os_release, '\n'))
        if (line.starts_with("PRETTY_NAME=")) {
            const auto words = shell_words(line.substr(line.find('=') + 1));
            return words && !words->empty() ? words->front() : "";
        }
    return {};
}

std::string parse_cpu(std::string_view cpuinfo) {
    for (const std::string_view key : {"model name", "cpu model", "cpu", "Model"})
        if (const std::string_view value = value_of(cpuinfo, key); !value.empty())
            return std::string(value);
    return {};
}

std::uint64_t parse_memory(std::string_view meminfo) {
    const auto words = words_of(value_of(meminfo, "MemTotal"));
    if (words.empty()) return 0;
    return static_cast<std::uint64_t>(to_int(words[0], 0, 1ll << 50).value_or(0)) * 1'024;
}

/// Its lines: "15b3  Mellanox Technologies", below it "\t1017  MT27800 Family [ConnectX-5]".
std::string device_model(std::string_view pci_ids, std::string_view vendor,
                         std::string_view device) {
    const std::string_view vendor_id = without_0x(vendor);
    const std::string_view device_id = without_0x(device);
    if (vendor_id.empty()) return {};
    std::string_view maker = vendor_name(vendor_id);
    bool ours = false;
    for (std::size_t at = 0; at < pci_ids.size();) {
        const std::size_t end = std::min(pci_ids.find('\n', at), pci_ids.size());
        const std::string_view line = pci_ids.substr(at, end - at);
        at = end + 1;
        if (line.empty() || line[0] == '#' || line.starts_with("\t\t")) continue;
        if (line[0] != '\t') {
            if (ours) break;
            ours = line.starts_with(vendor_id);
            if (ours) maker = trim(line.substr(vendor_id.size()));
        } else if (ours && line.substr(1).starts_with(device_id)) {
            return fmt::format("{} {}", maker, trim(line.substr(1 + device_id.size())));
        }
    }
    if (maker.empty()) return fmt::format("{}:{}", vendor_id, device_id);
    return fmt::format("{} {}", maker, device_id);
}

void parse_gpus(std::string_view csv, HostRecord& facts) {
    for (const std::string_view line : split(csv, '\n')) {
        const auto cells = split(line, ',');
        if (cells.size() != 3) continue;
        GpuRecord& gpu = facts.gpus.emplace_back();
        gpu.model = trim(cells[0]);
        if (const auto mebibytes = to_int(trim(cells[1]), 1, 1ll << 40))
            gpu.memory_bytes = static_cast<double>(*mebibytes) * (1 << 20);
        facts.driver = trim(cells[2]);
    }
}

/// A line of names, then one for each GPU: its name, and its link to each of the others.
std::string parse_gpu_links(std::string_view matrix) {
    const std::string plain = without_escapes(matrix);
    std::size_t gpus = 0;
    std::set<std::string_view> kinds;
    for (const std::string_view line : split(plain, '\n')) {
        const auto words = words_of(line);
        if (words.empty() || !words[0].starts_with("GPU")) continue;
        if (gpus == 0) {
            gpus = static_cast<std::size_t>(std::ranges::count_if(
                words, [](auto word) { return word.starts_with("GPU") && word != "GPU"; }));
            continue;
        }
        for (std::size_t i = 1; i < words.size() && i <= gpus; ++i)
            if (words[i] != "X") kinds.insert(words[i]);
    }
    std::string text;
    for (const std::string_view kind : kinds)
        text += (text.empty() ? "" : ", ") + describe_link(kind);
    return text;
}

}  // namespace dtrun::lab::rank
