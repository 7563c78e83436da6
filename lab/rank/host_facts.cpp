#include "lab/rank/host_facts.h"

#include "base/fd.h"
#include "base/strings.h"
#include "lab/rank/run_program.h"

#include <sys/utsname.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>

namespace dtrun::lab::rank {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kProgramLimit{10'000};
constexpr int kSpeedMax = 100'000'000;      // Mbit/s
constexpr std::string_view kMarks = ",;:";  // behind a word

/// "" if it cannot be read; files of /proc and /sys end without a size.
std::string text_of(const std::string& path) {
    return read_file(path).value_or("");
}

std::string pci_ids() {
    for (const char* path : {"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"})
        if (auto text = read_file(path)) return *text;
    return {};
}

void ask_python(HostRecord& facts, const std::string& python) {
    // What packages there are can be seen without importing them, which takes seconds.
    const auto text = output_of({python, "-c",
                                 "import sys\n"
                                 "print(sys.version.split()[0])\n"
                                 "from importlib.metadata import version\n"
                                 "for name in 'torch', 'horovod':\n"
                                 " try: print(version(name))\n"
                                 " except Exception: print()\n"},
                                kProgramLimit);
    if (!text) return;
    const auto lines = split(*text, '\n');
    facts.python = lines[0];
    if (lines.size() > 2) facts.torch = lines[1];
    if (lines.size() > 2) facts.horovod = lines[2];
}

}  // namespace

std::string version_elsewhere(std::string_view name, std::chrono::milliseconds limit) {
    const auto text = output_of({"/proc/self/exe", "version-of", std::string(name)}, limit);
    return text ? std::string(trim(*text)) : "";
}

HostRecord collect_host_facts(const std::string& host, const std::string& python) {
    HostRecord facts;
    facts.name = host;
    facts.os = parse_os(text_of("/etc/os-release"));
    utsname system{};
    if (::uname(&system) == 0) facts.kernel = system.release;
    facts.cpu = parse_cpu(text_of("/proc/cpuinfo"));
    if (facts.cpu.empty()) facts.cpu = system.machine;
    if (const long cores = ::sysconf(_SC_NPROCESSORS_ONLN); cores > 0)
        facts.cores = static_cast<double>(cores);
    if (const std::uint64_t bytes = parse_memory(text_of("/proc/meminfo")); bytes > 0)
        facts.memory_bytes = static_cast<double>(bytes);
    facts.nics = list_nics("/sys/class/net", pci_ids());
    if (const auto csv = output_of({"nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                                    "--format=csv,noheader,nounits"},
                                   kProgramLimit)) {
        parse_gpus(*csv, facts);
        facts.gpu_links =
            parse_gpu_links(output_of({"nvidia-smi", "topo", "-m"}, kProgramLimit).value_or(""));
    }
    facts.cuda = version_elsewhere("cuda");
    for (std::size_t i = 0; i < collectives::kBackendCount; ++i)
        facts.libraries[i] = version_elsewhere(collectives::kBackends[i].name);
    ask_python(facts, python);
    return facts;
}

double line_rate_of(std::string_view transport, const std::string& folder) {
    for (std::string_view word : split(transport, ' ')) {
        while (!word.empty() && kMarks.find(word.back()) != std::string_view::npos)
            word.remove_suffix(1);
        if (word.empty() || word.find('/') != std::string_view::npos || word.front() == '.')
            continue;
        const fs::path interface = fs::path(folder) / word;
        std::error_code error;
        if (!fs::exists(interface / "speed", error)) continue;
        const std::string kind = text_of((interface / "uevent").string());
        const bool is_real = fs::exists(interface / "device", error) ||
                             kind.find("DEVTYPE=bond") != std::string::npos ||
                             kind.find("DEVTYPE=vlan") != std::string::npos;
        const auto speed = to_int(trim(text_of((interface / "speed").string())), 1, kSpeedMax);
        if (is_real && speed) return static_cast<double>(*speed);
    }
    return kUnknown;
}

std::vector<NicRecord> list_nics(const std::string& folder, std::string_view ids) {
    std::vector<NicRecord> physical;
    std::vector<NicRecord> others;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const std::string path = entry.path().string();
        const fs::path device = entry.path() / "device";
        NicRecord nic;
        nic.name = entry.path().filename().string();
        if (const auto speed = to_int(trim(text_of(path + "/speed")), 1, kSpeedMax))
            nic.speed_mbit = static_cast<double>(*speed);
        if (!fs::exists(device, error)) {
            if (nic.name != "lo" && trim(text_of(path + "/operstate")) != "down")
                others.push_back(nic);
            continue;
        }
        nic.driver = fs::read_symlink(device / "driver", error).filename().string();
        nic.model = nic.driver.starts_with("virtio")
                        ? "virtio"  // whose numbers are not those of PCI
                        : device_model(ids, trim(text_of(device / "vendor")),
                                       trim(text_of(device / "device")));
        if (fs::exists(device / "infiniband", error)) nic.model += " (RDMA)";
        physical.push_back(nic);
    }
    auto& nics = physical.empty() ? others : physical;
    std::ranges::sort(nics, {}, &NicRecord::name);
    return nics;
}

}  // namespace dtrun::lab::rank
