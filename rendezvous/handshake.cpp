#include "rendezvous/handshake.h"

#include "rendezvous/messages.h"

#include <algorithm>

namespace dtrun {
namespace {

constexpr std::array<std::uint8_t, 4> kMagic{'d', 't', 'r', 'n'};
constexpr std::size_t kServerRecordBytes = 40;  // without the proof

using ServerRecord = std::array<std::uint8_t, kServerRecordBytes>;
using ClientRecord = std::array<std::uint8_t, ClientHello::kBytes>;

std::span<const std::uint8_t> as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Sha256 proof(std::string_view role, const Secret& secret, const ClientRecord& client,
             const ServerRecord& server) {
    return hmac_sha256(secret.bytes(), {as_bytes(role), client, server});
}

template <class Record>
void put_preamble(Record& record, std::uint16_t version) {
    std::ranges::copy(kMagic, record.begin());
    record[4] = static_cast<std::uint8_t>(version >> 8);
    record[5] = static_cast<std::uint8_t>(version);
}

std::uint16_t version_of(std::span<const std::uint8_t> record) {
    return static_cast<std::uint16_t>(record[4] << 8 | record[5]);
}

/// Reads or writes all of `buffer` before `deadline`.
template <class Transfer>
asio::awaitable<Result<void>> timed(tcp::socket& socket, Deadline deadline, Transfer transfer) {
    DeadlineGuard guard(socket, deadline);
    const auto [error, bytes] = co_await std::move(transfer);
    if (guard.expired()) co_return fail(Errc::timed_out, "no answer during authentication");
    if (error == asio::error::eof || error == asio::error::connection_reset)
        co_return fail(Errc::closed, "connection closed during authentication");
    if (error) co_return fail(Errc::closed, "{}", error.message());
    co_return Result<void>{};
}

asio::awaitable<Result<void>> read_record(tcp::socket& socket, std::span<std::uint8_t> record,
                                          Deadline deadline) {
    const auto buffer = asio::buffer(record.data(), record.size());
    auto transfer = asio::async_read(socket, buffer, use_tuple);
    co_return co_await timed(socket, deadline, std::move(transfer));
}

asio::awaitable<Result<void>> write_record(tcp::socket& socket,
                                           std::span<const std::uint8_t> record,
                                           Deadline deadline) {
    const auto buffer = asio::buffer(record.data(), record.size());
    auto transfer = asio::async_write(socket, buffer, use_tuple);
    co_return co_await timed(socket, deadline, std::move(transfer));
}

}  // namespace

std::array<std::uint8_t, ClientHello::kBytes> encode_hello(const ClientHello& hello) {
    ClientRecord record{};
    put_preamble(record, hello.version);
    std::ranges::copy(hello.job, record.begin() + 8);
    std::ranges::copy(hello.nonce, record.begin() + 24);
    return record;
}

Result<ClientHello> decode_hello(std::span<const std::uint8_t, ClientHello::kBytes> bytes) {
    if (!std::ranges::equal(bytes.first<4>(), kMagic) || bytes[6] != 0 || bytes[7] != 0)
        return fail(Errc::invalid_input, "not dtrun's protocol");
    ClientHello hello;
    hello.version = version_of(bytes);
    std::ranges::copy(bytes.subspan<8, 16>(), hello.job.begin());
    std::ranges::copy(bytes.subspan<24, 32>(), hello.nonce.begin());
    return hello;
}

asio::awaitable<Result<void>> authenticate_to_server(tcp::socket& socket, JobId job, Secret secret,
                                                     Deadline deadline) {
    ClientHello hello{kProtocolVersion, job, {}};
    random_bytes(hello.nonce);
    const ClientRecord ours = encode_hello(hello);
    auto done = co_await write_record(socket, ours, deadline);
    if (!done) co_return done;

    std::array<std::uint8_t, kServerRecordBytes + 32> answer;
    done = co_await read_record(socket, answer, deadline);
    if (!done) co_return done;
    ServerRecord theirs;
    std::copy_n(answer.begin(), theirs.size(), theirs.begin());
    if (!std::equal(kMagic.begin(), kMagic.end(), theirs.begin()))
        co_return fail(Errc::denied, "the other side does not speak dtrun's protocol");
    if (version_of(theirs) != kProtocolVersion)
        co_return fail(Errc::denied, "the other side speaks protocol {}, this is {}",
                       version_of(theirs), kProtocolVersion);
    const Sha256 expected = proof("dtrun server", secret, ours, theirs);
    const std::span<const std::uint8_t> shown(answer.data() + kServerRecordBytes, 32);
    if (!equal_constant_time(expected, shown))
        co_return fail(Errc::denied, "the other side does not know the job's secret");

    const Sha256 mine = proof("dtrun client", secret, ours, theirs);
    co_return co_await write_record(socket, mine, deadline);
}

asio::awaitable<Result<JobId>> authenticate_client(tcp::socket& socket, SecretOf secret_of,
                                                   Deadline deadline) {
    ClientRecord theirs;
    auto done = co_await read_record(socket, theirs, deadline);
    if (!done) co_return std::unexpected(done.error());
    const auto hello = decode_hello(theirs);
    if (!hello) co_return std::unexpected(hello.error());

    // A job that does not exist gets a random secret, so that it cannot be told from a wrong one.
    const Secret* known = secret_of(hello->job);
    const Secret secret = known != nullptr ? *known : Secret::random();
    std::array<std::uint8_t, kServerRecordBytes + 32> answer{};
    put_preamble(answer, kProtocolVersion);
    random_bytes(std::span(answer).subspan<8, 32>());
    ServerRecord ours;
    std::copy_n(answer.begin(), ours.size(), ours.begin());
    const Sha256 mine = proof("dtrun server", secret, theirs, ours);
    std::ranges::copy(mine, answer.begin() + kServerRecordBytes);
    done = co_await write_record(socket, answer, deadline);
    if (!done) co_return std::unexpected(done.error());
    if (hello->version != kProtocolVersion)
        co_return fail(Errc::denied, "speaks protocol {}, this is {}", hello->version,
                       kProtocolVersion);

    Sha256 shown;
    done = co_await read_record(socket, shown, deadline);
    if (!done) co_return std::unexpected(done.error());
    const Sha256 expected = proof("dtrun client", secret, theirs, ours);
    if (!equal_constant_time(expected, shown)) co_return fail(Errc::denied, "wrong secret");
    co_return hello->job;
}

}  // namespace dtrun
