#include "launcher/transport/agent_file.h"

#include "base/build_id.h"

#include <sys/utsname.h>
#include <unistd.h>
#include <climits>

namespace dtrun::transport {
namespace {

std::string own_directory() {
    char path[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
    const std::string text(path, n > 0 ? static_cast<std::size_t>(n) : 0);
    return text.substr(0, text.rfind('/'));
}

}  // namespace

Result<AgentFile> find_agent(const std::string& machine) {
    utsname own{};
    ::uname(&own);
    const bool foreign = !machine.empty() && machine != own.machine;
    const std::string of_machine = foreign ? "-" + machine : "";
    const std::string name = "dtrun-agent" + of_machine;
    const std::string beside = own_directory() + "/" + name;
    const std::string installed = own_directory() + "/../libexec/dtrun/" + name;
    for (const std::string& path : {beside, installed}) {
        if (::access(path.c_str(), X_OK) != 0) continue;
        auto build_id = elf_build_id(path);
        if (!build_id) return std::unexpected(build_id.error());
        const std::string package =
            fmt::format("{}/dtrun-package{}.tar.gz", path.substr(0, path.rfind('/')), of_machine);
        return AgentFile{path, *build_id, ::access(package.c_str(), R_OK) == 0 ? package : ""};
    }
    if (foreign)
        return fail(Errc::not_found,
                    "its CPU is {} and there is no agent for that: run ./dev build on such a "
                    "machine, with the same sources, and copy its build/release/bin/dtrun-agent to "
                    "{} here, and dtrun-package.tar.gz to dtrun-package{}.tar.gz",
                    machine, beside, of_machine);
    return fail(Errc::not_found, "no agent at {} or {}", beside, installed);
}

}  // namespace dtrun::transport
