#include "launcher/plan/machine_facts.h"

#include "base/fd.h"
#include "base/strings.h"

#include <sched.h>
#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>

namespace dtrun::plan {
namespace {

/// Entries of a directory that are called `prefix` and a number.
int count_numbered(const char* directory, std::string_view prefix, const std::string& not_empty) {
    int count = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with(prefix) || !to_int(name.substr(prefix.size()), 0, 65'535)) continue;
        if (not_empty.empty()) {
            ++count;
            continue;
        }
        const auto text = read_file(entry.path().string() + "/" + not_empty);
        count += text && !trim(*text).empty() ? 1 : 0;
    }
    return count;
}

int count_cpus() {
    cpu_set_t cpus;
    if (::sched_getaffinity(0, sizeof cpus, &cpus) == 0) return CPU_COUNT(&cpus);
    return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
}

}  // namespace

bool hides_devices(std::string_view device) {
    return device.empty() || device.starts_with('-') || device == "NoDevFiles";
}

int visible_devices(int present, EnvironmentView environment) {
    const auto list = find_variable(environment, "CUDA_VISIBLE_DEVICES");
    if (present == 0 || !list) return present;
    int count = 0;
    for (const std::string_view item : split(*list, ',')) {
        const std::string_view device = trim(item);
        if (hides_devices(device)) break;
        ++count;
    }
    return count;
}

MachineFacts machine_facts(EnvironmentView environment) {
    MachineFacts facts;
    facts.gpus_present = count_numbered("/dev", "nvidia", "");
    facts.gpus = visible_devices(facts.gpus_present, environment);
    facts.cpus = count_cpus();
    facts.numa_nodes = std::max(count_numbered("/sys/devices/system/node", "node", "cpulist"), 1);
    return facts;
}

}  // namespace dtrun::plan
