#pragma once

#include "rendezvous/wire/msgpack.h"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace dtrun::stores {

/// Bytes that a client of torch's TCPStore is to be sent, in the protocol's encoding.
///
/// Thread: one.
class TcpStoreOutput {
public:
    bool empty() const { return bytes_.empty(); }
    std::string_view bytes() const { return bytes_; }
    /// So much waits for the client that nothing is to be begun before it has read some.
    bool is_full() const;

    /// \param bytes  so many, at the beginning of bytes()
    void sent(std::size_t bytes);
    /// All of it, to keep while it is being sent.
    Bytes take() { return std::exchange(bytes_, {}); }

    /// An integer of the protocol has the size of its type.
    template <std::integral T>
    void put(T value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    /// Their number comes first.
    void put_bytes(std::string_view bytes);

private:
    Bytes bytes_;
};

}  // namespace dtrun::stores
