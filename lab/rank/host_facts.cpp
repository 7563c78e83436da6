#include "lab/rank/host_facts.h"

#include "base/fd.h"
#include "base/strings.h"
#include "lab/rank/json_line.h"
#include "lab/rank/run_program.h"

#include <sys/utsname.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>

namespace dtrun::collectives::bench {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kProgramLimit{10'000};

/// "" if it cannot be read; files of /proc and /sys end without a size.
std::string text_of(const std::string& path) {
    return read_file(path).value_or("");
}

std::string pci_ids() {
    for (const char* path : {"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"})
        if (auto text = read_file(path)) return *text;
    return {};
}

/// What this program says of a library in another process.
std::string version_elsewhere(const char* name) {
    const auto text = output_of({"/proc/self/exe", "version-of", name}, kProgramLimit);
    return text ? std::string(trim(*text)) : "";
}

void ask_python(HostFacts& facts) {
    // Whether torch is there can be seen without importing it, which takes seconds.
    const auto text = output_of({"python3", "-c",
                                 "import sys\n"
                                 "print(sys.version.split()[0])\n"
                                 "try:\n"
                                 " from importlib.metadata import version\n"
                                 " print(version('torch'))\n"
                                 "except Exception: pass\n"},
                                kProgramLimit);
    if (!text) return;
    const auto lines = split(*text, '\n');
    facts.python = lines[0];
    if (lines.size() > 1) facts.torch = lines[1];
}

}  // namespace

HostFacts collect_host_facts(const std::string& host) {
    HostFacts facts;
    facts.host = host;
    facts.os = parse_os(text_of("/etc/os-release"));
    utsname name{};
    if (::uname(&name) == 0) facts.kernel = name.release;
    facts.cpu = parse_cpu(text_of("/proc/cpuinfo"));
    if (facts.cpu.empty()) facts.cpu = name.machine;
    facts.cores = static_cast<std::uint32_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 0L));
    facts.memory_bytes = parse_memory(text_of("/proc/meminfo"));
    facts.nics = list_nics("/sys/class/net", pci_ids());
    if (const auto csv = output_of({"nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                                    "--format=csv,noheader,nounits"},
                                   kProgramLimit)) {
        parse_gpus(*csv, facts);
        facts.gpu_links =
            parse_gpu_links(output_of({"nvidia-smi", "topo", "-m"}, kProgramLimit).value_or(""));
    }
    facts.cuda = version_elsewhere("cuda");
    facts.nccl = version_elsewhere("nccl");
    facts.mpi = version_elsewhere("mpi");
    facts.gloo = version_elsewhere("gloo");
    facts.oneccl = version_elsewhere("oneccl");
    ask_python(facts);
    return facts;
}

std::string to_json(const HostFacts& facts) {
    std::vector<JsonWriter> nics;
    for (const HostFacts::Nic& nic : facts.nics)
        nics.push_back(JsonWriter()
                           .add("name", nic.name)
                           .add("model", nic.model)
                           .add("speed_mbit", nic.speed_mbit)
                           .add("driver", nic.driver));
    std::vector<JsonWriter> gpus;
    for (const HostFacts::Gpu& gpu : facts.gpus)
        gpus.push_back(JsonWriter().add("model", gpu.model).add("memory_bytes", gpu.memory_bytes));
    return json_line("host")
        .add("name", facts.host)
        .add("os", facts.os)
        .add("kernel", facts.kernel)
        .add("cpu", facts.cpu)
        .add("cores", facts.cores)
        .add("memory_bytes", facts.memory_bytes)
        .add("nics", nics)
        .add("gpus", gpus)
        .add("gpu_links", facts.gpu_links)
        .add("driver", facts.driver)
        .add("cuda", facts.cuda)
        .add("nccl", facts.nccl)
        .add("mpi", facts.mpi)
        .add("gloo", facts.gloo)
        .add("oneccl", facts.oneccl)
        .add("python", facts.python)
        .add("torch", facts.torch)
        .text();
}

std::vector<HostFacts::Nic> list_nics(const std::string& folder, std::string_view ids) {
    std::vector<HostFacts::Nic> physical;
    std::vector<HostFacts::Nic> others;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const std::string path = entry.path().string();
        const fs::path device = entry.path() / "device";
        HostFacts::Nic nic;
        nic.name = entry.path().filename().string();
        nic.speed_mbit = to_int(trim(text_of(path + "/speed")), 1, 100'000'000).value_or(-1);
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
    std::ranges::sort(nics, {}, &HostFacts::Nic::name);
    return nics;
}

}  // namespace dtrun::collectives::bench
