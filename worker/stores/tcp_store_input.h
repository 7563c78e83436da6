#pragma once

#include "base/result.h"
#include "rendezvous/wire/request.h"
#include "worker/stores/input_buffer.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
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

/// One request. Its keys and values lie in the bytes that have come.
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

/// What a client of torch's TCPStore has sent: bytes in, however they are cut, one request after the other
/// out. What a length announces is compared with the limits as soon as it is there, and nothing is allocated
/// for it.
///
/// At most one request is found and not consumed. Its fields can be read until consume(), wherever
/// the bytes move meanwhile.
///
/// Thread: one.
class TcpStoreInput {
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
    explicit TcpStoreInput(std::function<bool()> has_idle_sibling)
        : has_idle_sibling_(std::move(has_idle_sibling)) {}

    /// See InputBuffer.
    std::span<char> room() { return buffer_.room(); }
    void received(std::size_t bytes);

    /// Finds the next request, unless one is found already. \return whether there is one.
    /// Errc: invalid_input
    Result<bool> find();
    const TorchRequest& request() const { return request_; }
    /// A field of request(); valid until room() or consume().
    std::string_view field(std::size_t index) const;
    std::size_t request_bytes() const { return request_bytes_; }
    /// The request that was found is done with, if there is one.
    void consume() { buffer_.use(std::exchange(request_bytes_, 0)); }

    /// How much has come behind the request that was found.
    std::size_t backlog_bytes() const { return buffer_.unused().size() - request_bytes_; }
    bool has_spoken() const { return has_spoken_; }
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

    InputBuffer buffer_;
    std::size_t request_bytes_ = 0;  ///< of the request that was found; 0: none
    bool has_spoken_ = false;
    std::function<bool()> has_idle_sibling_;
    TorchDialect dialect_ = TorchDialect::unknown;
    TorchRequest request_;
    const char* shape_ = nullptr;   ///< what is still to come of it; nullptr: its beginning
    const char* repeat_ = nullptr;  ///< what comes `left_` times
    std::uint64_t left_ = 0;
    std::uint64_t pairs_left_ = 0;  ///< of a MULTI_SET of which a piece was taken
    std::size_t at_ = 0;            ///< looked at so far
    std::size_t weight_ = 0;        ///< of kRequestBytesMax
    std::uint64_t requests_ = 0;
    bool undecided_ = false;
};

}  // namespace dtrun::stores
