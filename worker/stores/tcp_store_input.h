#pragma once

#include "base/result.h"
#include "worker/stores/input_buffer.h"
#include "worker/stores/tcp_store_wire.h"

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

namespace dtrun::stores {

/// What a client of torch's TCPStore has sent: bytes in, one request after the other out.
///
/// At most one request is found and not consumed. Its fields can be read until consume(), wherever
/// the bytes move meanwhile.
///
/// Thread: one.
class TcpStoreInput {
public:
    /// \param has_idle_sibling  see TcpStoreParser
    explicit TcpStoreInput(std::function<bool()> has_idle_sibling)
        : parser_(std::move(has_idle_sibling)) {}

    /// See InputBuffer.
    std::span<char> room() { return buffer_.room(); }
    void received(std::size_t bytes);

    /// Finds the next request, unless one is found already. \return whether there is one.
    /// Errc: invalid_input
    Result<bool> find();
    const TorchRequest& request() const { return parser_.request(); }
    /// A field of request(); valid until room() or consume().
    std::string_view field(std::size_t index) const;
    std::size_t request_bytes() const { return request_bytes_; }
    /// The request that was found is done with, if there is one.
    void consume();

    /// How much has come behind the request that was found.
    std::size_t backlog_bytes() const { return buffer_.unused().size() - request_bytes_; }
    bool has_spoken() const { return has_spoken_; }
    TorchDialect dialect() const { return parser_.dialect(); }
    bool undecided() const { return parser_.undecided(); }  ///< see TcpStoreParser

private:
    InputBuffer buffer_;
    TcpStoreParser parser_;
    std::size_t request_bytes_ = 0;  ///< of the request that was found; 0: none
    bool has_spoken_ = false;
};

}  // namespace dtrun::stores
