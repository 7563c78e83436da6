#pragma once

#include "rendezvous/wire/store_request.h"
#include "worker/client/connect/outcome.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::embedded {

/// As the operation's function of <dtrun.h> is called, without "dtrun_".
const char* function_of(Op op);

/// Why a request has failed, with its name before it. Without a text the store has said that its time is over.
Failure named(const StoreRequest& request, std::int64_t timeout_ms, Failure why);

/// What has failed, with the function's name before it, and after which time.
Failure named(std::string_view function, std::int64_t timeout_ms, Failure why);

/// "0.3 s", "60 s"
std::string seconds_text(std::int64_t ms);

}  // namespace dtrun::embedded
