#pragma once

#include "base/result.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/request.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dtrun {

/// One operation of the store with its arguments, which are views into other buffers. Only fields
/// that the table in docs/PROTOCOL.md lists for the operation are used.
struct StoreRequest {
    Op op{};
    std::vector<std::string_view> keys{};
    std::vector<std::string_view> values{};  ///< as many as keys for multi_set, else at most one
    std::optional<std::string_view> expected{};  ///< of compare_set; none: the key must be missing
    std::int64_t delta = 0;                      ///< add
    std::uint64_t number = 0;  ///< list: limit; watch: revision; cancel: id of the request
    std::uint64_t timeout_ms = 0;
    std::string_view after{};  ///< list

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
