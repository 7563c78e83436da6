#include "worker/agent/machine_load.h"

#include "base/fd.h"
#include "base/strings.h"
#include "rendezvous/wire/heartbeat.h"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <limits>
#include <memory>

namespace dtrun::agent {
namespace {

constexpr long kRunnablePerProcessor = 4;
constexpr std::chrono::milliseconds kLate{1'000};
constexpr std::chrono::seconds kMemory{4};

}  // namespace

/// "0.42 0.35 0.30 3/512 12345": three averages, runnable of all threads, the last pid
long runnable_threads(std::string_view loadavg) {
    const auto words = split(loadavg, ' ');
    if (words.size() < 4) return 0;
    const std::string_view runnable = words[3].substr(0, words[3].find('/'));
    return static_cast<long>(to_int(runnable, 0, std::numeric_limits<int>::max()).value_or(0));
}

MachineLoad::Source runnable_threads_source(const char* path) {
    const auto file = std::make_shared<Fd>(::open(path, O_RDONLY | O_CLOEXEC));
    const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);
    return [file, processors] {
        std::array<char, 128> text{};
        const ssize_t bytes = ::pread(file->get(), text.data(), text.size(), 0);
        return bytes > 0 && processors > 0 &&
               runnable_threads({text.data(), static_cast<std::size_t>(bytes)}) >
                   kRunnablePerProcessor * processors;
    };
}

void MachineLoad::sample(Deadline now) {
    const bool late = last_sample_ && now > *last_sample_ + kCalmHeartbeatInterval + kLate;
    last_sample_ = now;
    if (source_() || late) high_until_ = now + kMemory;
}

}  // namespace dtrun::agent
