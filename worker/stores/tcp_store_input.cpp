#include "worker/stores/tcp_store_input.h"

namespace dtrun::stores {

void TcpStoreInput::received(std::size_t bytes) {
    buffer_.received(bytes);
    has_spoken_ |= bytes > 0;
}

Result<bool> TcpStoreInput::find() {
    if (request_bytes_ > 0) return true;
    const std::string_view unused = buffer_.unused();
    if (unused.empty()) return false;
    if (const auto found = parser_.next(unused, request_bytes_); !found)
        return std::unexpected(found.error());
    return request_bytes_ > 0;
}

std::string_view TcpStoreInput::field(std::size_t index) const {
    const TorchRequest::Field& at = parser_.request().fields[index];
    return buffer_.unused().substr(at.at, at.bytes);
}

void TcpStoreInput::consume() {
    buffer_.use(std::exchange(request_bytes_, 0));
}

}  // namespace dtrun::stores
