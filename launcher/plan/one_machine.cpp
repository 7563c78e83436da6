#include "launcher/plan/one_machine.h"

#include "base/log.h"

#include <fmt/format.h>
#include <vector>

namespace dtrun::plan {

std::string same_machine_text(const std::string& name, const std::string& other) {
    return fmt::format(
        "{} and {} are one machine: give it one name, with all its slots, or --oversubscribe if "
        "its ranks are "
        "to share devices and processors",
        other, name);
}

Result<void> check_one_machine(const JobSpec& spec) {
    std::vector<std::string> here;
    for (const JobHost& host : spec.hosts)
        if (host.transport == Transport::local) here.push_back(host.host.name);
    if (here.size() < 2) return {};
    const std::string text = same_machine_text(here[1], here[0]);
    if (!spec.options.oversubscribe) return fail(Errc::invalid_input, "{}", text);
    log::warn("{}", text);
    return {};
}

}  // namespace dtrun::plan
