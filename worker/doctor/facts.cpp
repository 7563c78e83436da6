#include "worker/doctor/facts.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/interfaces.h"
#include "base/process/command_output.h"
#include "base/simulated.h"
#include "base/strings.h"
#include "worker/ranks/usage.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <thread>

namespace dtrun::doctor {
namespace {

constexpr std::chrono::milliseconds kFactsLimit{7'700};  // for all programs to tell their versions
constexpr std::chrono::seconds kDateLimit{1};

/// Asks packages for their versions by what is installed: an import of torch takes seconds.
constexpr const char* kPython = R"(
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # not what lies in this directory
print(sys.version.split()[0])
print(sys.executable)
try:
    from importlib.metadata import version
except ImportError:
    sys.exit()
def tell(fact, *packages):
    for package in packages:
        try:
            print(fact, version(package))
            return
        except Exception:
            pass
tell("torch", "torch")
tell("mpi4py", "mpi4py")
tell("nccl", "nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
)";

using Facts = std::vector<HostFact>;

/// What a program has to say of a fact.
struct Said {
    std::string text{};     ///< that it prints
    std::string trouble{};  ///< why it does not; empty where there is no such program
};

/// Programs that tell something, all until one moment.
class Programs {
public:
    explicit Programs(Deadline until) : until_(until) {}

    Said ask(const std::vector<std::string>& words) const {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - Clock::now());
        auto output = command_output(words, Captured::out_alone,
                                     std::max(left, std::chrono::milliseconds(1)));
        if (output && output->status == 0) return {std::move(output->text)};
        if (output) return {{}, fmt::format("(fails with exit code {})", output->status)};
        if (output.error().code == Errc::not_found) return {};
        return {{}, "(does not answer)"};
    }

private:
    Deadline until_;
};

std::string first_line(std::string_view text) {
    return std::string(trim(text.substr(0, text.find('\n'))));
}

Facts python_facts(const Programs& programs) {
    Said answer = programs.ask({"python3", "-c", kPython});
    if (answer.text.empty() && answer.trouble.empty())
        answer = programs.ask({"python", "-c", kPython});
    Facts facts{{"python", answer.trouble},
                {"python_path", ""},
                {"torch", ""},
                {"mpi4py", ""},
                {"nccl", ""}};
    const std::string& said = answer.text;
    if (said.empty()) return facts;
    const auto lines = split(said, '\n');
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i < 2) facts[i].value = trim(lines[i]);
        const std::size_t blank = lines[i].find(' ');
        for (HostFact& fact : facts)
            if (i >= 2 && fact.name == lines[i].substr(0, blank))
                fact.value = lines[i].substr(blank + 1);
    }
    return facts;
}

/// The first mpirun on PATH that is one: dtrun may be there under this name, and before it.
Facts mpi_facts(const Programs& programs) {
    const char* const path = std::getenv("PATH");
    for (const std::string_view folder : split(path != nullptr ? path : "", ':')) {
        const std::string program = fmt::format("{}/mpirun", folder);
        if (!folder.starts_with('/') || !is_program(program))
            continue;  // nothing of this directory is run
        const Said said = programs.ask({program, "--version"});
        if (is_dtrun(said.text)) continue;
        return {{"mpi", said.text.empty() ? said.trouble : mpi_version(said.text)}};
    }
    return {{"mpi", ""}};
}

/// Whether there is something that nvidia-smi is to show. Images and packages bring it to machines without a GPU, too, as
/// log-in nodes are, and it fails there.
bool may_have_gpus() {
    std::error_code error;
    for (const char* const path : {"/proc/driver/nvidia/version", "/dev/dxg"})  // of Linux; of WSL
        if (std::filesystem::exists(path, error)) return true;
    using Folder = std::filesystem::directory_iterator;
    for (Folder device("/sys/bus/pci/devices", error); device != Folder(); device.increment(error))
        if (trim(read_file(device->path() / "vendor").value_or("")) == "0x10de") return true;
    return false;
}

/// nvidia-smi takes seconds where NVIDIA's daemon does not run, so all is asked at once.
Facts gpu_facts(const Programs& programs) {
    const auto ask = [&programs](const char* query) {
        return std::async(std::launch::async, [&programs, query] {
            return programs.ask({"nvidia-smi", query, "--format=csv,noheader,nounits"});
        });
    };
    auto cards = ask("--query-gpu=index,uuid,name,utilization.gpu,memory.used,memory.total");
    auto processes = ask("--query-compute-apps=gpu_uuid,pid");
    auto ecc = ask("--query-gpu=index,ecc.errors.uncorrected.volatile.total");
    const Said known = cards.get();
    const std::vector<GpuUsage> gpus =
        ranks::parse_gpus(known.text, processes.get().text, [](pid_t) { return kNoRank; });
    const std::string errors = ecc.get().text;
    Facts facts{{"gpus", ""}, {"gpus_in_use", ""}, {"gpu_errors", ""}};
    std::vector<std::pair<std::string, int>> kinds;
    std::vector<std::string> in_use;
    for (const GpuUsage& gpu : gpus) {
        if (kinds.empty() || kinds.back().first != gpu.name) kinds.emplace_back(gpu.name, 0);
        ++kinds.back().second;
        if (gpu.strangers > 0)
            in_use.push_back(fmt::format("GPU {} ({} MiB, {} process{})", gpu.index,
                                         gpu.memory_bytes >> 20, gpu.strangers,
                                         gpu.strangers == 1 ? "" : "es"));
    }
    std::vector<std::string> names;
    for (const auto& [name, count] : kinds) names.push_back(fmt::format("{} x {}", count, name));
    if (!gpus.empty() || may_have_gpus())
        facts[0].value = gpus.empty() ? known.trouble : fmt::format("{}", fmt::join(names, ", "));
    facts[1].value = fmt::format("{}", fmt::join(in_use, ", "));
    std::vector<std::string> broken;
    for (const std::string_view line : split(errors, '\n')) {
        const std::size_t comma = line.find(',');
        if (comma == std::string_view::npos) continue;
        const auto count = to_int(trim(line.substr(comma + 1)), 1, INT64_MAX);
        if (count)
            broken.push_back(fmt::format("GPU {} ({})", trim(line.substr(0, comma)), *count));
    }
    facts[2].value = fmt::format("{}", fmt::join(broken, ", "));
    return facts;
}

std::string limit_of(int which) {
    rlimit limit{};
    if (::getrlimit(which, &limit) != 0) return "";
    return limit.rlim_max == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit.rlim_max);
}

Facts machine_facts(const std::string& directory) {
    Facts facts;
    struct stat found {};
    std::string problem;
    if (::stat(directory.c_str(), &found) != 0)
        problem = std::strerror(errno);
    else if (!S_ISDIR(found.st_mode))
        problem = "it is no directory";
    else if (::access(directory.c_str(), X_OK) != 0)
        problem = std::strerror(errno);
    facts.push_back({"directory_problem", problem});
    facts.push_back({"descriptors", limit_of(RLIMIT_NOFILE)});
    facts.push_back({"processes", limit_of(RLIMIT_NPROC)});
    facts.push_back({"memlock", limit_of(RLIMIT_MEMLOCK)});
    struct statvfs shm {};
    const bool has_shm = ::statvfs("/dev/shm", &shm) == 0;
    facts.push_back({"shm", has_shm ? fmt::format("{}", shm.f_blocks * shm.f_frsize) : ""});
    facts.push_back({"shm_free", has_shm ? fmt::format("{}", shm.f_bavail * shm.f_frsize) : ""});
    facts.push_back({"rdma", ::access("/dev/infiniband", F_OK) == 0 ? "yes" : ""});
    facts.push_back(
        {"driver", driver_version(read_file("/proc/driver/nvidia/version").value_or(""))});
    facts.push_back({"cpus", fmt::format("{}", std::thread::hardware_concurrency())});
    const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
    facts.push_back({"memory", fmt::format("{}", std::int64_t{pages} * page)});
    utsname system{};
    if (::uname(&system) == 0)
        facts.push_back({"kernel", fmt::format("{} {}", system.release, system.machine)});
    const std::string release = read_file("/etc/os-release").value_or("");
    for (std::string_view line : split(release, '\n')) {
        constexpr std::string_view kName = "PRETTY_NAME=";
        if (!line.starts_with(kName)) continue;
        line.remove_prefix(kName.size());
        if (line.starts_with('"') && line.size() >= 2) line = line.substr(1, line.size() - 2);
        facts.push_back({"system", std::string(line)});
    }
    return facts;
}

std::uint32_t prefix_bits(const sockaddr* mask) {
    if (mask == nullptr) return 0;
    if (mask->sa_family == AF_INET)
        return static_cast<std::uint32_t>(
            std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr));
    std::uint32_t bits = 0;
    if (mask->sa_family == AF_INET6)
        for (const std::uint8_t byte :
             reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr)
            bits += static_cast<std::uint32_t>(std::popcount(byte));
    return bits;
}

std::uint32_t number_in(const std::string& path) {
    const auto text = read_file(path);
    return static_cast<std::uint32_t>(text ? to_int(trim(*text), 1, 1 << 30).value_or(0) : 0);
}

}  // namespace

std::vector<HostFact> gather_facts(const std::string& directory) {
    const Programs programs(after(kFactsLimit));
    const auto start = [&programs](Facts (*gather)(const Programs&)) {
        return std::async(std::launch::async, gather, std::cref(programs));
    };
    std::future<Facts> asked[] = {start(python_facts), start(mpi_facts), start(gpu_facts)};
    Facts facts = machine_facts(directory);
    for (std::future<Facts>& each : asked) std::ranges::move(each.get(), std::back_inserter(facts));
    return facts;
}

std::vector<HostAddress> addresses_here() {
    std::vector<HostAddress> addresses;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return addresses;
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
    const std::vector<InterfaceAddress> usable = interface_addresses();
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr) continue;
        const std::string address = numeric(entry->ifa_addr);
        const auto known = std::ranges::find_if(usable, [&](const InterfaceAddress& each) {
            return each.interface == entry->ifa_name && each.address == address && !each.loopback;
        });
        if (address.empty() || known == usable.end()) continue;
        const std::string folder = fmt::format("/sys/class/net/{}/", entry->ifa_name);
        addresses.push_back({entry->ifa_name, address, prefix_bits(entry->ifa_netmask),
                             number_in(folder + "mtu"), number_in(folder + "speed")});
    }
    return addresses;
}

std::int64_t time_of_date() {
    const std::string said = Programs(after(kDateLimit)).ask({"date", "+%s.%N"}).text;
    const std::size_t dot = said.find('.');
    const auto seconds = to_int(trim(std::string_view(said).substr(0, dot)), 1, 1LL << 40);
    if (!seconds) return since_1970().count();
    const std::string_view rest =
        dot == std::string::npos ? "" : trim(std::string_view(said).substr(dot + 1));
    const auto nanoseconds = to_int(rest, 0, 999'999'999);  // not every `date` has them
    return *seconds * 1'000'000'000 + nanoseconds.value_or(500'000'000);
}

std::string mpi_version(std::string_view said) {
    constexpr std::string_view kOpenMpi = "(Open MPI) ";
    const std::string first = first_line(said);
    if (const std::size_t at = first.find(kOpenMpi); at != std::string::npos)
        return "Open MPI " + first.substr(at + kOpenMpi.size());
    for (std::string_view line : split(said, '\n')) {
        line = trim(line);
        constexpr std::string_view kVersion = "Version:";
        if (line.starts_with(kVersion))
            return "MPICH " + std::string(trim(line.substr(kVersion.size())));
    }
    return first;
}

bool is_dtrun(std::string_view said) {
    return said.starts_with("dtrun ");
}

std::string driver_version(std::string_view text) {
    for (const std::string_view word : split(text.substr(0, text.find('\n')), ' '))
        if (!word.empty() && word.find('.') != std::string_view::npos &&
            word.find_first_not_of("0123456789.") == std::string_view::npos)
            return std::string(word);
    return "";
}

}  // namespace dtrun::doctor
