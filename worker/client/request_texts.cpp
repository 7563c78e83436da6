#include "worker/client/request_texts.h"

#include "base/strings.h"

#include <fmt/format.h>

namespace dtrun::embedded {

const char* function_of(Op op) {
    switch (op) {
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    case Op::name:                                                 \
        return function;
#include "rendezvous/wire/operations.def"
    }
    return "store";
}

namespace {

/// `get("key")`, `wait("a" and 2 more)`
std::string name_of(const StoreRequest& request) {
    if (request.keys.empty()) return fmt::format("{}()", function_of(request.op));
    const std::size_t more = request.keys.size() - 1;
    return fmt::format("{}(\"{}\"{})", function_of(request.op), escaped(request.keys.front()),
                       more == 0 ? std::string() : fmt::format(" and {} more", more));
}

/// What has not happened: "not there after 0.3 s".
std::string too_late_text(Op op, std::int64_t timeout_ms) {
    const std::string span = seconds_text(timeout_ms);
    switch (op) {
        case Op::lock:
            return fmt::format("not free for {}", span);
        case Op::pop:
        case Op::claim:
            return fmt::format("nothing has come for {}", span);
        case Op::watch:
        case Op::watch_prefix:
            return fmt::format("no change for {}", span);
        case Op::wait:
        case Op::multi_get:
            return fmt::format("not all there after {}", span);
        default:
            return fmt::format("not there after {}", span);
    }
}

}  // namespace

Failure named(const StoreRequest& request, std::int64_t timeout_ms, Failure why) {
    if (why.text.empty()) why.text = too_late_text(request.op, timeout_ms);
    why.text = fmt::format("{}: {}", name_of(request), why.text);
    return why;
}

Failure named(std::string_view function, std::int64_t timeout_ms, Failure why) {
    if (why.code == DTRUN_TIMED_OUT)
        why.text = fmt::format("nothing for {}", seconds_text(timeout_ms));
    why.text = fmt::format("{}: {}", function, why.text);
    return why;
}

std::string seconds_text(std::int64_t ms) {
    return fmt::format("{} s", static_cast<double>(ms) / 1000);
}

}  // namespace dtrun::embedded
