#pragma once

#include "rendezvous/wire/store_request.h"
#include "worker/client/connect/outcome.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::embedded {

/// As errors name it: `get("key")`, `wait("a" and 2 more)`.
std::string name_of(const StoreRequest& request);

/// What has not happened when the store says that the time of an operation is over: "not there after 0.3 s".
std::string too_late_text(Op op, std::int64_t timeout_ms);

/// What has failed, with the function's name before it, and after which time.
Failure named(std::string_view function, std::int64_t timeout_ms, Failure why);

/// "0.3 s", "60 s"
std::string seconds_text(std::int64_t ms);

}  // namespace dtrun::embedded
