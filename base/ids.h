#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dtrun {

/// Names a job for as long as it lives; random, not secret.
using JobId = std::array<std::uint8_t, 16>;

/// The key that proves membership of a job: 32 random bytes, wiped by the destructor. It travels on
/// an agent's standard input only: never in argv, an environment, a file or a log.
class Secret {
public:
    static constexpr std::size_t kBytes = 32;

    Secret() = default;
    explicit Secret(std::span<const std::uint8_t, kBytes> bytes);
    Secret(const Secret&) = default;
    Secret& operator=(const Secret&) = default;
    ~Secret();

    static Secret random();
    std::span<const std::uint8_t, kBytes> bytes() const { return bytes_; }

private:
    std::array<std::uint8_t, kBytes> bytes_{};
};

/// Fills `out` from the kernel's generator; ends the process if there is none.
void random_bytes(std::span<std::uint8_t> out);
JobId random_job_id();
std::uint64_t random_id();  ///< never 0

/// Lower-case hexadecimal.
std::string hex(std::span<const std::uint8_t> bytes);

}  // namespace dtrun
