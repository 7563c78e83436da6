#pragma once

#include "base/result.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/request.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dtrun {

/// What must hold for a transaction to be carried out. A part of the wire protocol, as is the next.
struct Condition {
    enum class Kind : std::uint8_t {
        missing = 0,
        exists = 1,
        value = 2,     ///< the key has this value
        revision = 3,  ///< the key has this revision, as a lock has that of its token
    };
    std::string_view key;
    Kind kind{};
    std::string_view value{};
    std::uint64_t revision = 0;
};

/// What a transaction does to one key.
struct Action {
    enum class Kind : std::uint8_t { set = 0, erase = 1, push = 2, add = 3 };
    Kind kind{};
    std::string_view key;
    std::string_view value{};  ///< of add: a decimal number
};

/// One operation of the store with its arguments, which are views into other buffers. Only fields
/// that the table in docs/PROTOCOL.md lists for the operation are used.
struct StoreRequest {
    Op op{};
    std::vector<std::string_view> keys{};
    std::vector<std::string_view> values{};  ///< as many as keys for multi_set, else at most one
    std::optional<std::string_view> expected{};  ///< of compare_set; none: the key must be missing
    std::int64_t delta = 0;                      ///< add
    /// list: limit; watch, watch_prefix: revision; cancel: id of the request; unlock: token;
    /// acknowledge, give_back: item
    std::uint64_t number = 0;
    std::uint64_t timeout_ms = 0;
    std::string_view after{};  ///< list
    std::uint64_t owner = 0;   ///< the client whose things these are; 0: nobody's
    std::uint64_t ttl_ms = 0;  ///< put; 0: no limit
    std::uint64_t limit = 0;   ///< watch_prefix: of changes
    std::vector<Condition> conditions{};
    std::vector<Action> actions{};

    /// \param arguments  as encode() writes them, less the generation
    /// Errc: invalid_input; the text is for the client
    static Result<StoreRequest> decode(Op op, PackReader& arguments);
    /// Whether it has the keys and values that its operation takes, without which it cannot be encoded.
    /// Errc: invalid_input
    Result<void> check() const;
    /// The arguments, the generation first.
    Bytes encode(std::uint64_t generation) const;
};

/// A whole frame. \param header  its `op` is set to the request's
Bytes encode_request(RequestHeader header, const StoreRequest& request, std::uint64_t generation);

}  // namespace dtrun
