#include "worker/stores/tcp_store_output.h"

namespace dtrun::stores {
namespace {

constexpr std::size_t kBytesMax = 1u << 20;
constexpr std::size_t kBytesKept = 128u << 10;

}  // namespace

bool TcpStoreOutput::is_full() const {
    return bytes_.size() >= kBytesMax;
}

void TcpStoreOutput::sent(std::size_t bytes) {
    if (bytes < bytes_.size())
        bytes_.erase(0, bytes);
    else if (bytes_.capacity() > kBytesKept)
        bytes_ = Bytes();
    else
        bytes_.clear();
}

void TcpStoreOutput::put_bytes(std::string_view bytes) {
    put<std::uint64_t>(bytes.size());
    bytes_ += bytes;
}

}  // namespace dtrun::stores
