#pragma once

#include <fmt/core.h>
#include <expected>
#include <string>
#include <utility>

namespace dtrun {

/// What the caller can do about it. A code exists only if some caller branches on it.
enum class Errc {
    invalid_input,  ///< the user wrote something wrong; the message names where
    not_found,      ///< a named thing is not there: program, directory, host name
    timed_out,      ///< a deadline passed; the message says how long and which flag changes it
    unreachable,    ///< the network refused: no route, refused port, unknown name
    denied,         ///< credentials or permissions: keys, host keys, not executable
    closed,         ///< the other side ended the connection
    cancelled,      ///< we were told to stop
    internal,       ///< anything else
};

/// A failure as a value. `message` reads "who: what", ready to be shown.
struct Error {
    Errc code{};
    std::string message;
};

template <class T>
using Result = std::expected<T, Error>;

/// Makes a failure: `return fail(Errc::denied, "host key of {} changed", host);`
template <class... A>
[[nodiscard]] std::unexpected<Error> fail(Errc code, fmt::format_string<A...> text, A&&... args) {
    return std::unexpected(Error{code, fmt::format(text, std::forward<A>(args)...)});
}

/// Passes an error up and adds *who*: `return fail(reply.error(), "rank {}", rank);`
template <class... A>
[[nodiscard]] std::unexpected<Error> fail(const Error& cause, fmt::format_string<A...> who,
                                          A&&... args) {
    return std::unexpected(
        Error{cause.code, fmt::format(who, std::forward<A>(args)...) + ": " + cause.message});
}

}  // namespace dtrun
