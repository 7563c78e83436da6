#include "worker/agent/machine_load.h"

#include "base/fd.h"
#include "base/strings.h"
#include "rendezvous/wire/heartbeat.h"

#include <unistd.h>
#include <limits>

namespace dtrun::agent {
namespace {

constexpr long kRunnablePerProcessor = 4;
constexpr std::chrono::milliseconds kLate{1'000};
constexpr std::chrono::seconds kMemory{2};

}  // namespace

/// "0.42 0.35 0.30 3/512 12345": three averages, runnable of all threads, the last pid
long runnable_threads(std::string_view loadavg) {
    const auto words = split(loadavg, ' ');
    if (words.size() < 4) return 0;
    const std::string_view runnable = words[3].substr(0, words[3].find('/'));
    return static_cast<long>(to_int(runnable, 0, std::numeric_limits<int>::max()).value_or(0));
}

bool has_many_runnable_threads() {
    const auto loadavg = read_file("/proc/loadavg");
    const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);
    return loadavg && processors > 0 &&
           runnable_threads(*loadavg) > kRunnablePerProcessor * processors;
}

void MachineLoad::sample(Deadline now) {
    const bool late = last_sample_ && now > *last_sample_ + kHeartbeatInterval + kLate;
    last_sample_ = now;
    if (source_() || late) high_until_ = now + kMemory;
}

}  // namespace dtrun::agent
