#pragma once

#include "rendezvous/wire/store_request.h"
#include "worker/client/connect/outcome.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::embedded {

/// Why a request has failed, with its name before it. Without a text the store has said that its time is over.
Failure named(const StoreRequest& request, std::int64_t timeout_ms, Failure why);

/// What has failed, with the function's name before it, and after which time.
Failure named(std::string_view function, std::int64_t timeout_ms, Failure why);

/// "0.3 s", "60 s"
std::string seconds_text(std::int64_t ms);

}  // namespace dtrun::embedded
