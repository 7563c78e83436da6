#include "launcher/transport/agent_file.h"

#include "base/build_id.h"
#include "base/own_program.h"

#include <elf.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

namespace dtrun::transport {
namespace {

/// The CPUs for which releases have agents.
struct ReleasedCpu {
    std::string_view name;
    std::uint16_t elf;  ///< e_machine of its programs
};
constexpr ReleasedCpu kReleased[] = {{"x86_64", EM_X86_64}, {"aarch64", EM_AARCH64}};

const ReleasedCpu* released(std::string_view cpu) {
    const auto* const found = std::ranges::find(kReleased, cpu, &ReleasedCpu::name);
    return found == std::end(kReleased) ? nullptr : found;
}

Result<std::string> own_directory() {
    const auto own = own_program();
    if (!own)
        return fail(Errc::not_found,
                    "dtrun cannot tell where it lies, and so not where its agent is: {}",
                    own.error().message);
    return own->substr(0, own->rfind('/'));
}

/// The program's CPU by its header. \return 0: it has none
std::uint16_t elf_machine(const std::string& path) {
    Elf64_Ehdr header{};
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    return file ? header.e_machine : std::uint16_t{EM_NONE};
}

/// Why a file that lies where the agent belongs is not to be used; empty: it is.
std::string why_not(const std::string& path, const ReleasedCpu* cpu, bool runs_here) {
    if (::access(path.c_str(), R_OK) != 0)
        return fmt::format("{}: {}", path, std::generic_category().message(errno));
    const std::uint16_t machine = elf_machine(path);
    if (cpu != nullptr && machine != EM_NONE && machine != cpu->elf)
        return fmt::format("{} is for another CPU than {}: put the agent of {} there", path,
                           cpu->name, cpu->name);
    if (runs_here && ::access(path.c_str(), X_OK) != 0)
        return fmt::format(
            "{} cannot be executed: chmod 755 it, or, where its file system is mounted noexec, "
            "install dtrun elsewhere",
            path);
    return {};
}

Error missing_here(const std::string& beside, const std::string& installed) {
    return Error{Errc::not_found,
                 fmt::format("the agent that belongs to this dtrun is missing: looked for {} and "
                             "{}. Install dtrun as a whole (pip install dtrun, or its package or "
                             "tar file), or copy dtrun-agent and dtrun-package.tar.gz of the same "
                             "version to one of these folders",
                             beside, installed)};
}

Error missing_for(std::string_view cpu, const std::string& beside, const std::string& installed) {
    const std::string looked =
        fmt::format("its CPU is {}, and this dtrun has no agent for that: looked for {} and {}. ",
                    cpu, beside, installed);
    if (released(cpu) != nullptr)
        return Error{Errc::not_found,
                     looked +
                         "Releases of dtrun (pip install dtrun, its packages and tar files) "
                         "have agents for x86_64 and aarch64, and so has what ./dev portable "
                         "makes; or install dtrun of the same version on that host"};
    const bool is_narrow =
        cpu == "i386" || cpu == "i486" || cpu == "i586" || cpu == "i686" || cpu.starts_with("armv");
    if (is_narrow) return Error{Errc::not_found, looked + "dtrun needs a 64-bit kernel"};
    return Error{
        Errc::not_found,
        fmt::format("{}Releases have those of x86_64 and aarch64 only: build dtrun on such a "
                    "machine of the same sources, and copy its dtrun-agent to {}, and its "
                    "dtrun-package.tar.gz to {}/dtrun-package-{}.tar.gz",
                    looked, beside, beside.substr(0, beside.rfind('/')), cpu)};
}

}  // namespace

std::string own_cpu() {
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    utsname own{};
    ::uname(&own);
    return own.machine;
#endif
}

std::string_view cpu_of(std::string_view machine) {
    if (machine == "amd64") return "x86_64";
    if (machine == "arm64") return "aarch64";
    return machine;
}

Result<AgentFile> find_agent(const std::string& machine) {
    const auto folder = own_directory();
    if (!folder) return std::unexpected(folder.error());
    return find_agent_near(*folder, machine);
}

std::vector<std::string> agent_build_ids() {
    const auto folder = own_directory();
    return folder ? agent_build_ids_near(*folder) : std::vector<std::string>{};
}

std::vector<std::string> agent_build_ids_near(const std::string& folder) {
    std::vector<std::string> ids;
    const std::string own = own_cpu();
    for (const ReleasedCpu& cpu : kReleased)
        if (const auto agent = find_agent_near(folder, std::string(cpu.name)))
            ids.insert(cpu.name == own ? ids.begin() : ids.end(), agent->build_id);
    return ids;
}

Result<AgentFile> find_agent_near(const std::string& folder, const std::string& machine) {
    const std::string own = own_cpu();
    const std::string cpu(machine.empty() ? std::string_view(own) : cpu_of(machine));
    const bool foreign = cpu != own;
    const std::string of_cpu = foreign ? "-" + cpu : "";
    const std::string beside = fmt::format("{}/dtrun-agent{}", folder, of_cpu);
    const std::string installed =
        fmt::format("{}/libexec/dtrun/dtrun-agent{}", folder.substr(0, folder.rfind('/')), of_cpu);
    for (const std::string& path : {beside, installed}) {
        if (::access(path.c_str(), F_OK) != 0) continue;
        if (const std::string why = why_not(path, released(cpu), !foreign); !why.empty())
            return fail(Errc::denied, "{}", why);
        auto build_id = elf_build_id(path);
        if (!build_id) return fail(build_id.error(), "it is not dtrun's agent; install dtrun anew");
        const std::string package =
            fmt::format("{}/dtrun-package{}.tar.gz", path.substr(0, path.rfind('/')), of_cpu);
        return AgentFile{path, *build_id, ::access(package.c_str(), R_OK) == 0 ? package : ""};
    }
    if (foreign) return std::unexpected(missing_for(cpu, beside, installed));
    return std::unexpected(missing_here(beside, installed));
}

}  // namespace dtrun::transport
