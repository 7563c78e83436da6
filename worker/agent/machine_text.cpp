#include "worker/agent/machine_text.h"

#include "base/fd.h"
#include "base/interfaces.h"
#include "base/strings.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

namespace dtrun::agent {

std::string machine_text() {
    const auto boot = read_file("/proc/sys/kernel/random/boot_id");
    if (!boot) return {};
    std::string text = fmt::format("{} {}", trim(*boot), ::geteuid());
    for (const char* const name : {"mnt", "net", "pid"}) {
        std::error_code error;
        const auto space =
            std::filesystem::read_symlink(std::string("/proc/self/ns/") + name, error);
        if (error) return {};
        text += " " + space.native();
    }
    // Copies of a virtual machine that runs have all of that in common, but not their addresses.
    std::set<std::string> addresses;
    for (const InterfaceAddress& address : interface_addresses()) addresses.insert(address.address);
    for (const std::string& address : addresses) text += " " + address;
    return text;
}

}  // namespace dtrun::agent
