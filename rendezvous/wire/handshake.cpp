#include "rendezvous/wire/handshake.h"

#include <fmt/format.h>

namespace dtrun {

Handshake::Handshake(const JobId& job, const Secret& secret, HandshakeTerms terms)
    : is_server_(false), terms_(terms), job_(job), secret_(secret) {
    client_ = encode_hello(ClientHello{terms_.versions.newest, terms_.flags, job, terms_.nonce});
    say(client_);
}

Handshake::Handshake(SecretOf secret_of, HandshakeTerms terms)
    : is_server_(true), secret_of_(std::move(secret_of)), terms_(terms) {
    server_ = encode_hello(ServerHello{terms_.versions.newest, terms_.flags, terms_.nonce});
}

void Handshake::say(std::span<const std::uint8_t> record) {
    out_ += as_text(record);
}

std::span<std::uint8_t> Handshake::room() {
    std::span<std::uint8_t> record;
    if (awaits_ == Awaits::proof) record = shown_;
    if (awaits_ == Awaits::hello && is_server_) record = client_;
    if (awaits_ == Awaits::hello && !is_server_) record = server_;
    return record.subspan(come_);
}

Result<void> Handshake::come(std::size_t bytes) {
    if (failed_) return std::unexpected(*failed_);
    come_ += bytes;
    if (!room().empty()) return {};
    come_ = 0;
    const bool is_last = awaits_ == Awaits::proof;
    const auto heard = is_last ? hear_proof() : is_server_ ? hear_client() : hear_server();
    if (!heard) failed_ = heard.error();
    if (heard) awaits_ = is_last ? Awaits::nothing : Awaits::proof;
    return heard;
}

Result<void> Handshake::compare(std::uint16_t version, std::uint16_t flags) const {
    if (!terms_.versions.knows(version))
        return fail(Errc::denied, "{} speaks protocol {}, this is {}", terms_.words.other, version,
                    terms_.versions.newest);
    if (flags != terms_.flags)
        return fail(Errc::denied, "{} wants {}{}", terms_.words.other,
                    flags != 0 ? "an encrypted connection" : "a connection without encryption",
                    terms_.words.encryption);
    return {};
}

Result<void> Handshake::hear_client() {
    const auto hello = decode_hello(client_);
    if (!hello) return std::unexpected(hello.error());
    say(server_);
    const auto fits = compare(hello->version, hello->flags);
    // Clients before version 3 read this record, too, before they check the version.
    if (!fits) say(Sha256{});
    if (!fits) return fits;
    job_ = hello->job;
    others_nonce_ = hello->nonce;
    // An unknown job gets a random secret: clients cannot tell it from a wrong secret.
    const auto known = secret_of_(job_);
    secret_ = known ? *known : Secret::random();
    proofs_ = make_proofs(secret_, client_, server_);
    return {};
}

Result<void> Handshake::hear_server() {
    const auto hello = decode_server_hello(server_);
    if (!hello) return fail(Errc::denied, "{} does not speak dtrun's protocol", terms_.words.other);
    if (auto fits = compare(hello->version, hello->flags); !fits) return fits;
    others_nonce_ = hello->nonce;
    proofs_ = make_proofs(secret_, client_, server_);
    say(proofs_.client);
    return {};
}

Result<void> Handshake::hear_proof() {
    const bool proved = equal_constant_time(is_server_ ? proofs_.client : proofs_.server, shown_);
    if (is_server_) say(proved ? proofs_.server : Sha256{});
    if (!proved)
        return fail(Errc::denied, "{} {}", terms_.words.other, terms_.words.has_another_secret);
    return {};
}

}  // namespace dtrun
