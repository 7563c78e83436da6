#pragma once

#include "base/result.h"
#include "rendezvous/wire/request.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace dtrun::stores {

/// How a client numbers its operations. All integers of the protocol are little-endian.
enum class TorchDialect : std::uint8_t {
    unknown,   ///< nothing has come yet
    modern,    ///< torch 2.2 and later: VALIDATE first; later versions only added operations
    magic,     ///< of 2023: legacy_b's numbers, and VALIDATE's four bytes before every operation
    legacy,    ///< either of the next two: nothing has come in which they differ
    legacy_a,  ///< torch 1.13 and 2.0
    legacy_b,  ///< of 2023: without WATCH_KEY, with APPEND and what follows it
};

/// An operation of torch's TCPStore, under any number.
enum class TorchOp : std::uint8_t {
    validate,
    set,
    compare_set,
    get,
    add,
    check,
    wait,
    count,
    erase,
    append,
    multi_get,
    multi_set,
    cancel_wait,
    ping,
    push,
    pop,
    length,
    list,
    barrier,
    watch,
};

/// One request. Its keys and values lie in the bytes that were parsed.
struct TorchRequest {
    struct Field {
        std::size_t at = 0;  ///< from the request's first byte
        std::size_t bytes = 0;
    };
    TorchOp op{};
    std::vector<Field> fields;  ///< in the order of the wire
    std::int64_t number = 0;    ///< ADD's difference, BARRIER's world size
    std::uint32_t nonce = 0;    ///< PING's
};

/// Finds requests in a stream of bytes, however it is cut. What a length announces is compared with
/// the limits as soon as it is there, and nothing is allocated for it.
class TcpStoreParser {
public:
    /// Of a request: all keys and values, with kFieldBytes for each.
    static constexpr std::size_t kRequestBytesMax = kValueBytesMax + (128u << 10);
    static constexpr std::size_t kFieldBytes = 24;
    static constexpr std::size_t kKeyBytesMax = dtrun::kKeyBytesMax - 16;  // room for our prefix
    static constexpr std::uint64_t kKeysMax = 1u << 20;
    /// A larger MULTI_SET comes in pieces: several requests, each of which is atomic.
    static constexpr std::size_t kPieceBytes = 8u << 20;

    /// \param has_idle_sibling  whether another connection of the same host has said nothing so
    ///                          far, as one of two connections of each client in legacy_a does
    explicit TcpStoreParser(std::function<bool()> has_idle_sibling = {})
        : has_idle_sibling_(std::move(has_idle_sibling)) {}

    /// \param bytes  from the end of the last request on; of a request that is not complete, the
    ///               same bytes and more in the next call
    /// \param[out] used  bytes of this request, or 0: more are needed
    /// Errc: invalid_input
    Result<void> next(std::string_view bytes, std::size_t& used);

    /// The last one that next() found. Its fields count from `bytes`.
    const TorchRequest& request() const { return request_; }
    TorchDialect dialect() const { return dialect_; }
    /// A whole request may be there, but only another connection can tell.
    bool undecided() const { return undecided_; }

private:
    Result<bool> begin(std::string_view bytes);
    Result<bool> detect(std::string_view bytes);
    Result<void> choose(std::uint8_t number);
    Result<bool> step(std::string_view bytes);
    Result<bool> take_count(std::string_view bytes);
    Result<bool> take_field(std::string_view bytes);
    Result<bool> take_rest(std::string_view bytes);
    bool end_piece();

    std::function<bool()> has_idle_sibling_;
    TorchDialect dialect_ = TorchDialect::unknown;
    TorchRequest request_;
    const char* shape_ =
        nullptr;  ///< what is still to come of this request; nullptr: its beginning
    const char* repeat_ = nullptr;  ///< what comes `left_` times
    std::uint64_t left_ = 0;
    std::uint64_t pairs_left_ = 0;  ///< of a MULTI_SET of which a piece was taken
    std::size_t at_ = 0;            ///< looked at so far
    std::size_t weight_ = 0;        ///< of kRequestBytesMax
    std::uint64_t requests_ = 0;
    bool undecided_ = false;
};

}  // namespace dtrun::stores
