#pragma once

#include "base/result.h"

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::collectives {

/// The part of a job's store that ranks need to meet before they have a communicator. Thread-safe.
class KeyStore {
public:
    using Pair = std::pair<std::string, std::string>;

    virtual ~KeyStore() = default;

    /// Sets all pairs in one round trip. Errc: closed, cancelled
    virtual Result<void> set(std::span<const Pair> pairs) = 0;
    /// Waits until all keys exist and returns their values in order; one round trip.
    /// Errc: timed_out, closed, cancelled (the job or its generation is over)
    virtual Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                                 std::chrono::milliseconds timeout) = 0;
    /// The value if it exists now.
    virtual Result<std::optional<std::string>> find(const std::string& key) = 0;
};

}  // namespace dtrun::collectives
