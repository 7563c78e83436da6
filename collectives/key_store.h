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

/// Where ranks meet before they have a communicator: what of a job's store is needed for that.
/// Thread-safe.
class KeyStore {
public:
    using Pair = std::pair<std::string, std::string>;

    virtual ~KeyStore() = default;

    /// All at once, in one round trip. Errc: closed, cancelled
    virtual Result<void> set(std::span<const Pair> pairs) = 0;
    /// All values in the order of the keys, once all exist; one round trip.
    /// Errc: timed_out, closed, cancelled (the job or its generation is over)
    virtual Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                                 std::chrono::milliseconds timeout) = 0;
    /// The value if it exists now.
    virtual Result<std::optional<std::string>> find(const std::string& key) = 0;
};

}  // namespace dtrun::collectives
