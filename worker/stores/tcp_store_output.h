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
    bool is_full() const { return bytes_.size() >= kFullBytes; }

    /// \param bytes  so many, at the beginning of bytes()
    void sent(std::size_t bytes) {
        if (bytes < bytes_.size())
            bytes_.erase(0, bytes);
        else if (bytes_.capacity() > kBytesKept)
            bytes_ = Bytes();
        else
            bytes_.clear();
    }
    /// All of it, to keep while it is being sent.
    Bytes take() { return std::exchange(bytes_, {}); }

    /// An integer of the protocol has the size of its type.
    template <std::integral T>
    void put(T value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    /// Their number comes first.
    void put_bytes(std::string_view bytes) {
        put<std::uint64_t>(bytes.size());
        bytes_ += bytes;
    }

private:
    static constexpr std::size_t kFullBytes = 1u << 20;
    static constexpr std::size_t kBytesKept = 128u << 10;

    Bytes bytes_;
};

}  // namespace dtrun::stores
