#include "rendezvous/wire/handshake_records.h"

#include <algorithm>
#include <cassert>

namespace dtrun {
namespace {

constexpr std::array<std::uint8_t, 4> kMagic{'d', 't', 'r', 'n'};

}  // namespace

std::array<std::uint8_t, Preamble::kBytes> encode_preamble(const Preamble& preamble) {
    return {kMagic[0],
            kMagic[1],
            kMagic[2],
            kMagic[3],
            static_cast<std::uint8_t>(preamble.version >> 8),
            static_cast<std::uint8_t>(preamble.version),
            static_cast<std::uint8_t>(preamble.flags >> 8),
            static_cast<std::uint8_t>(preamble.flags)};
}

std::optional<Preamble> decode_preamble(std::span<const std::uint8_t> bytes) {
    assert(bytes.size() >= Preamble::kBytes);
    if (!std::ranges::equal(bytes.first(kMagic.size()), kMagic)) return std::nullopt;
    return Preamble{static_cast<std::uint16_t>(bytes[4] << 8 | bytes[5]),
                    static_cast<std::uint16_t>(bytes[6] << 8 | bytes[7])};
}

ClientRecord encode_hello(const ClientHello& hello) {
    ClientRecord record{};
    std::ranges::copy(encode_preamble({hello.version, hello.flags}), record.begin());
    std::ranges::copy(hello.job, record.begin() + 8);
    std::ranges::copy(hello.nonce, record.begin() + 24);
    return record;
}

Result<ClientHello> decode_hello(std::span<const std::uint8_t, ClientHello::kBytes> bytes) {
    const auto preamble = decode_preamble(bytes);
    if (!preamble || (preamble->flags & ~kFlagEncrypt) != 0)
        return fail(Errc::invalid_input, "not dtrun's protocol");
    ClientHello hello{.version = preamble->version, .flags = preamble->flags};
    std::ranges::copy(bytes.subspan<8, 16>(), hello.job.begin());
    std::ranges::copy(bytes.subspan<24, 32>(), hello.nonce.begin());
    return hello;
}

ServerRecord encode_hello(const ServerHello& hello) {
    ServerRecord record{};
    std::ranges::copy(encode_preamble({hello.version, hello.flags}), record.begin());
    std::ranges::copy(hello.nonce, record.begin() + 8);
    return record;
}

std::optional<ServerHello> decode_server_hello(
    std::span<const std::uint8_t, ServerHello::kBytes> bytes) {
    const auto preamble = decode_preamble(bytes);
    if (!preamble) return std::nullopt;
    ServerHello hello{.version = preamble->version, .flags = preamble->flags};
    std::ranges::copy(bytes.subspan<8, 32>(), hello.nonce.begin());
    return hello;
}

Nonce random_nonce() {
    Nonce nonce;
    random_bytes(nonce);
    return nonce;
}

Proofs make_proofs(const Secret& secret, const ClientRecord& client, const ServerRecord& server) {
    return {hmac_sha256(secret.bytes(), {as_bytes("dtrun client"), client, server}),
            hmac_sha256(secret.bytes(), {as_bytes("dtrun server"), client, server})};
}

}  // namespace dtrun
