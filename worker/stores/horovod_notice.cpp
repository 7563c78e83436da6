#include "worker/stores/horovod_notice.h"

#include "base/crypto.h"

#include <array>
#include <bit>
#include <cstring>

namespace dtrun::stores {
namespace {

constexpr std::size_t kReplyBytesMax = 64u << 10;
constexpr std::size_t kHeadBytes = sizeof(Sha256) + sizeof(std::int32_t);
constexpr char kMixed = 3;  // HostUpdateResult: some were added, some removed

/// As the host's own byte order has it: Python packs with "i".
template <class Integer>
std::string packed(Integer number) {
    std::string bytes(sizeof number, '\0');
    std::memcpy(bytes.data(), &number, sizeof number);
    return bytes;
}

/// In pickles numbers are little-endian.
std::string little_endian(std::int64_t number) {
    std::string bytes;
    for (int shift = 0; shift < 64; shift += 8)
        bytes += static_cast<char>(static_cast<std::uint64_t>(number) >> shift & 0xff);
    return bytes;
}

std::string short_text(std::string_view text) {
    std::string bytes = "X";
    return bytes.append(1, static_cast<char>(text.size())).append(3, '\0').append(text);
}

std::string global(std::string_view name) {
    return std::string("chorovod.runner.elastic.worker\n").append(name).append("\n");
}

}  // namespace

std::string horovod_notice(std::string_view secret, std::int64_t timestamp) {
    // HostsUpdatedRequest.__new__(), then its members; protocol 2, which every Python 3 reads.
    std::string body = "\x80\x02" + global("HostsUpdatedRequest") + ")\x81}(";
    body += short_text("timestamp") + "\x8a\x08" + little_endian(timestamp);
    body += short_text("res") + global("HostUpdateResult") + "K" + kMixed + "\x85R" + "ub.";
    const Sha256 digest = hmac_sha256(as_bytes(secret), {as_bytes(body)});
    std::string notice(reinterpret_cast<const char*>(digest.data()), digest.size());
    return notice + packed(static_cast<std::int32_t>(body.size())) + body;
}

bool is_signed(std::string_view secret, std::string_view reply) {
    if (reply.size() < kHeadBytes) return false;
    const Sha256 digest = hmac_sha256(as_bytes(secret), {as_bytes(reply.substr(kHeadBytes))});
    return equal_constant_time(digest, as_bytes(reply.substr(0, sizeof digest)));
}

asio::awaitable<Result<void>> deliver_notice(asio::any_io_executor executor, NoticeAddress address,
                                             std::int64_t timestamp, Deadline deadline) {
    tcp::socket socket(executor);
    const tcp::endpoint there(asio::ip::address_v4::loopback(), address.port);
    const std::string notice = horovod_notice(address.secret, timestamp);
    std::string reply(kHeadBytes, '\0');
    DeadlineGuard guard(socket, deadline);
    const auto failed = [&guard](const boost::system::error_code& error) {
        return fail(guard.expired() ? Errc::timed_out : Errc::closed, "{}", error.message());
    };
    socket.open(tcp::v4());
    const auto [refused] = co_await socket.async_connect(there, use_tuple);
    if (refused) co_return failed(refused);
    const auto bytes = asio::buffer(notice);
    const auto [unsent, written] = co_await asio::async_write(socket, bytes, use_tuple);
    if (unsent) co_return failed(unsent);
    const auto head = asio::buffer(reply);
    const auto [no_head, head_read] = co_await asio::async_read(socket, head, use_tuple);
    if (no_head) co_return failed(no_head);
    std::int32_t size = 0;
    std::memcpy(&size, reply.data() + sizeof(Sha256), sizeof size);
    if (size < 0 || static_cast<std::size_t>(size) > kReplyBytesMax)
        co_return fail(Errc::denied, "a reply of {} bytes", size);
    reply.resize(kHeadBytes + static_cast<std::size_t>(size));
    const auto rest = asio::buffer(reply.data() + kHeadBytes, static_cast<std::size_t>(size));
    const auto [no_body, body_read] = co_await asio::async_read(socket, rest, use_tuple);
    if (no_body) co_return failed(no_body);
    if (!is_signed(address.secret, reply)) co_return fail(Errc::denied, "its reply is not signed");
    co_return Result<void>{};
}

}  // namespace dtrun::stores
