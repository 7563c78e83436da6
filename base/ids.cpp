#include "base/ids.h"

#include "base/simulated.h"

#include <sys/random.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace dtrun {

void random_bytes(std::span<std::uint8_t> out) {
    if (SimulatedSystem::current != nullptr) return SimulatedSystem::current->random_bytes(out);
    while (!out.empty()) {
        const ssize_t n = ::getrandom(out.data(), out.size(), 0);
        if (n > 0) {
            out = out.subspan(static_cast<std::size_t>(n));
        } else if (errno != EINTR) {
            std::perror("getrandom, of Linux 3.17 or newer");
            std::abort();
        }
    }
}

Secret::Secret(std::span<const std::uint8_t, kBytes> bytes) {
    std::ranges::copy(bytes, bytes_.begin());
}

Secret::~Secret() {
    ::explicit_bzero(bytes_.data(), bytes_.size());
}

Secret Secret::random() {
    Secret made;
    random_bytes(made.bytes_);
    return made;
}

JobId random_job_id() {
    JobId id;
    random_bytes(id);
    return id;
}

std::uint64_t random_id() {
    std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
    std::uint64_t id = 0;
    while (id == 0) {
        random_bytes(bytes);
        std::memcpy(&id, bytes.data(), sizeof id);
    }
    return id;
}

std::string hex(std::span<const std::uint8_t> bytes) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const std::uint8_t byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

}  // namespace dtrun
