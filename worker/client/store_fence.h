#pragma once

#include "worker/client/client.h"

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace dtrun::embedded {

/// A fence by means of the store alone, for ranks of another launcher that have only a daemon's
/// store. As Client::fence(): it ends in the same way for all.
/// \param round  how often this rank has been at a fence of this name before
Outcome<std::vector<FenceEntry>> store_fence(Client& client, std::string_view name,
                                             std::uint64_t round,
                                             std::optional<std::string_view> bytes,
                                             std::int64_t timeout_ms,
                                             const std::function<bool()>& give_up);

}  // namespace dtrun::embedded
