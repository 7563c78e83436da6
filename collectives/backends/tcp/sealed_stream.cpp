#include "collectives/backends/tcp/sealed_stream.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>

namespace dtrun::collectives::over_tcp {
namespace {

/// What is sealed, and heard, at a time: several records, so that system calls are few.
constexpr std::size_t kBatchBytes = 4 * Seal::kPlainBytesMax;

}  // namespace

Result<std::size_t> SealedStream::send(const Socket& socket, std::span<const iovec> parts) {
    if (out_.empty()) {
        to_seal_.clear();
        for (const iovec& part : parts)
            to_seal_.append(static_cast<const char*>(part.iov_base),
                            std::min(part.iov_len, kBatchBytes - to_seal_.size()));
        going_ = to_seal_.size();
        sealing_.out.seal(to_seal_, out_);
    }
    while (out_at_ < out_.size()) {
        const iovec left{out_.data() + out_at_, out_.size() - out_at_};
        const auto sent = socket.send({&left, 1});
        if (!sent) return sent;
        if (*sent == 0) return 0;
        out_at_ += *sent;
    }
    out_.clear();
    out_at_ = 0;
    return going_;
}

Result<std::size_t> SealedStream::receive(const Socket& socket, void* data, std::size_t bytes) {
    if (bytes == 0) return 0;
    while (!has_ahead()) {
        const auto more = hear(socket);
        if (!more) return std::unexpected(more.error());
        if (!*more) return 0;
    }
    const std::size_t taken = std::min(bytes, plain_.size() - plain_at_);
    std::memcpy(data, plain_.data() + plain_at_, taken);
    plain_at_ += taken;
    return taken;
}

/// \return whether anything has come
Result<bool> SealedStream::hear(const Socket& socket) {
    in_.resize(kBatchBytes + Seal::kPlainBytesMax);
    const auto come = socket.receive(in_.data() + in_end_, in_.size() - in_end_);
    if (!come) return std::unexpected(come.error());
    in_end_ += *come;
    plain_.clear();
    plain_at_ = 0;
    std::string_view records(in_.data(), in_end_);
    if (auto opened = sealing_.in.open(records, plain_); !opened)
        return fail(Errc::closed, "what came was changed on its way: {}", opened.error().message);
    if (!records.empty()) std::memmove(in_.data(), records.data(), records.size());
    in_end_ = records.size();  // less than a record
    return *come > 0;
}

}  // namespace dtrun::collectives::over_tcp
