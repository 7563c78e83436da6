#include "launcher/plan/one_machine.h"

#include <string>
#include <vector>

namespace dtrun::plan {

Result<void> check_one_machine(const JobSpec& spec) {
    std::vector<std::string> here;
    for (const JobHost& host : spec.hosts)
        if (host.transport == Transport::local) here.push_back(host.host.name);
    if (here.size() < 2 || spec.options.oversubscribe) return {};
    return fail(Errc::invalid_input, "{} and {} are one machine: {}", here[0], here[1],
                kOneMachineAdvice);
}

}  // namespace dtrun::plan
