#pragma once

#include "base/result.h"
#include "collectives/backends/plugin_abi.h"

#include <concepts>
#include <string>
#include <string_view>

namespace dtrun::collectives {

// Texts and errors of plugin_abi.h, which both sides of it speak.

inline dtrun_plugin_text text_of(std::string_view text) {
    return {text.data(), text.size()};
}

inline std::string_view view_of(dtrun_plugin_text text) {
    return text.size == 0 ? std::string_view() : std::string_view(text.data, text.size);
}

inline void put(const dtrun_plugin_sink& sink, std::string_view text) {
    sink.put(sink.to, text_of(text));
}

/// A sink that hands each text to `take`, which outlives it and does not throw but for want of memory.
template <std::invocable<std::string_view> Take>
dtrun_plugin_sink sink_of(Take& take) {
    return {&take, [](void* to, dtrun_plugin_text text) noexcept {
                try {
                    (*static_cast<Take*>(to))(view_of(text));
                } catch (const std::exception&) {  // without it, then
                }
            }};
}

constexpr int code_of(Errc code) {
    return static_cast<int>(code) + 1;
}
static_assert(code_of(Errc::invalid_input) == DTRUN_PLUGIN_INVALID_INPUT);
static_assert(code_of(Errc::not_found) == DTRUN_PLUGIN_NOT_FOUND);
static_assert(code_of(Errc::timed_out) == DTRUN_PLUGIN_TIMED_OUT);
static_assert(code_of(Errc::unreachable) == DTRUN_PLUGIN_UNREACHABLE);
static_assert(code_of(Errc::denied) == DTRUN_PLUGIN_DENIED);
static_assert(code_of(Errc::closed) == DTRUN_PLUGIN_CLOSED);
static_assert(code_of(Errc::cancelled) == DTRUN_PLUGIN_CANCELLED);
static_assert(code_of(Errc::internal) == DTRUN_PLUGIN_INTERNAL);

/// Codes that this side does not know are internal errors.
constexpr Errc errc_of(int code) {
    return code >= DTRUN_PLUGIN_INVALID_INPUT && code <= DTRUN_PLUGIN_INTERNAL
               ? static_cast<Errc>(code - 1)
               : Errc::internal;
}

/// What a call to the other side has come to. Allocates nothing unless there is an error.
/// \param call  is given the sink for its error, and returns a code
template <class Call>
Result<void> asked(const Call& call) {
    std::string message;
    auto take = [&message](std::string_view text) { message = text; };
    const dtrun_plugin_sink sink = sink_of(take);
    const int code = call(&sink);
    if (code == DTRUN_PLUGIN_OK) return {};
    if (message.empty()) message = "it failed, and gives no reason";
    return std::unexpected(Error{errc_of(code), std::move(message)});
}

/// The other way round: runs what returns a Result<void>, and tells the other side what that is.
template <class Body>
int told(const dtrun_plugin_sink* error, const Body& body) noexcept {
    try {
        const Result<void> done = body();
        if (done) return DTRUN_PLUGIN_OK;
        put(*error, done.error().message);
        return code_of(done.error().code);
    } catch (const std::exception& thrown) {
        put(*error, thrown.what());
    } catch (...) {
        put(*error, "an exception of unknown type");
    }
    return DTRUN_PLUGIN_INTERNAL;
}

}  // namespace dtrun::collectives
