#include "collectives/backends/tcp/address_book.h"

#include "base/ids.h"
#include "collectives/backends/tcp/address.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace dtrun::collectives::over_tcp {
namespace {

using namespace std::chrono_literals;

/// How long it may go unnoticed, while others are awaited, that the group has ended.
constexpr std::chrono::milliseconds kSlice = 1s;
/// The timeout of what is not limited.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
constexpr char kRefusal = '!';
/// The rank whose card has the secret.
constexpr std::uint32_t kSecretRank = 0;
/// Ends the card of a rank that wants encryption.
constexpr std::string_view kEncrypted = " encrypted";

std::string card_key(const GroupSpec& spec, std::uint32_t rank) {
    return fmt::format("{}tcp/{}", spec.prefix, rank);
}

std::optional<Secret> parse_secret(std::string_view text) {
    std::array<std::uint8_t, Secret::kBytes> bytes{};
    if (text.size() != 2 * bytes.size()) return std::nullopt;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const char* const end = text.data() + 2 * i + 2;
        if (std::from_chars(end - 2, end, bytes[i], 16).ptr != end) return std::nullopt;
    }
    return Secret(bytes);
}

}  // namespace

AddressBook::AddressBook(const GroupSpec& spec) : spec_(spec), addresses_(spec.size) {
    terms_.encrypt = spec.encrypt;
}

std::string AddressBook::key(std::string_view name) const {
    return fmt::format("{}tcp/{}", spec_.prefix, name);
}

std::uint32_t AddressBook::name_of(std::uint32_t peer) const {
    return peer < spec_.members.size() ? spec_.members[peer] : peer;
}

Result<void> AddressBook::still_wanted() const {
    const auto asked = spec_.store->find(card_key(spec_, spec_.rank));
    if (asked) return {};
    return std::unexpected(asked.error());
}

void AddressBook::wait_forever() {
    spec_.timeout = kForever;
}

Result<void> AddressBook::publish(const sockaddr_storage& address) {
    addresses_[spec_.rank] = address;
    std::string card = text_of(address);
    if (spec_.rank == kSecretRank) {
        terms_.secret = Secret::random();
        card += ' ' + hex(terms_.secret.bytes());
    }
    if (terms_.encrypt) card += kEncrypted;
    const KeyStore::Pair pair(card_key(spec_, spec_.rank), std::move(card));
    return spec_.store->set({&pair, 1});
}

void AddressBook::refuse(const GroupSpec& spec, const std::string& why) {
    const KeyStore::Pair card(card_key(spec, spec.rank), kRefusal + why);
    // If the store fails, too, peers wait until their own timeout.
    static_cast<void>(spec.store->set({&card, 1}));
}

Result<void> AddressBook::fetch(std::span<const std::uint32_t> peers,
                                const std::atomic<bool>& ended) {
    std::vector<std::uint32_t> missing;
    for (const std::uint32_t peer : peers)
        if (!knows(peer)) missing.push_back(peer);
    if (missing.empty()) return {};
    if (!knows(kSecretRank) && missing.front() != kSecretRank)
        missing.insert(missing.begin(), kSecretRank);
    std::vector<std::string> keys;
    for (const std::uint32_t peer : missing) keys.push_back(card_key(spec_, peer));
    const auto deadline = std::chrono::steady_clock::now() + spec_.timeout;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        const auto values = spec_.store->get(keys, std::clamp(left, 0ms, kSlice));
        if (ended) return fail(Errc::cancelled, "aborted");
        if (!values && values.error().code != Errc::timed_out)
            return std::unexpected(values.error());
        if (!values && left <= 0ms) return std::unexpected(not_come(keys, missing));
        if (!values) continue;
        for (std::size_t i = 0; i < missing.size(); ++i) {
            auto done = read(missing[i], (*values)[i]);
            if (!done) return done;
        }
        return {};
    }
}

Result<void> AddressBook::read(std::uint32_t peer, std::string_view card) {
    if (card.starts_with(kRefusal))
        return fail(Errc::invalid_input, "rank {}: {}", name_of(peer), card.substr(1));
    const bool encrypts = card.ends_with(kEncrypted);
    if (encrypts != terms_.encrypt)
        return fail(Errc::invalid_input,
                    "rank {} wants {}, and this rank does{}: DTRUN_ENCRYPT has to be 1 in the "
                    "environment of all ranks, or of none",
                    name_of(peer), encrypts ? "encryption" : "no encryption",
                    encrypts ? " not" : "");
    if (encrypts) card.remove_suffix(kEncrypted.size());
    if (peer == kSecretRank) {
        const std::size_t space = std::min(card.rfind(' '), card.size() - 1);
        const auto secret = parse_secret(card.substr(space + 1));
        if (!secret)
            return fail(Errc::invalid_input, "rank {} has left no secret in the job's store",
                        name_of(peer));
        terms_.secret = *secret;
        card = card.substr(0, space);
    }
    const auto address = parse_address(card);
    if (!address) return fail(address.error(), "rank {}", name_of(peer));
    const sockaddr_storage& own = this->address(spec_.rank);
    if (own.ss_family != address->ss_family)
        return fail(Errc::invalid_input,
                    "this rank listens at {} and rank {} at {}: all must use IPv4, or all IPv6 "
                    "(name the interfaces)",
                    text_of(own), name_of(peer), text_of(*address));
    addresses_[peer] = *address;
    return {};
}

Error AddressBook::not_come(const std::vector<std::string>& keys,
                            std::span<const std::uint32_t> peers) {
    constexpr std::size_t kNamed = 8;
    std::string names;
    std::size_t count = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto value = spec_.store->find(keys[i]);
        if (!value || *value) continue;
        if (++count <= kNamed)
            names += fmt::format("{}{}", count == 1 ? "" : ", ", name_of(peers[i]));
    }
    return {Errc::timed_out,
            fmt::format("rank{} {}{} {} not come within {} s", count == 1 ? "" : "s", names,
                        count > kNamed ? fmt::format(" and {} more", count - kNamed) : "",
                        count == 1 ? "has" : "have",
                        std::chrono::duration<double>(spec_.timeout).count())};
}

}  // namespace dtrun::collectives::over_tcp
