#include "collectives/tcp/directory.h"

#include "base/ids.h"
#include "collectives/tcp/address.h"

#include <algorithm>

namespace dtrun::collectives::over_tcp {
namespace {

using namespace std::chrono_literals;

/// How long it may go unnoticed, while others are awaited, that the group has ended.
constexpr std::chrono::milliseconds kSlice = 1s;
/// The timeout of what is not limited.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
constexpr char kRefusal = '!';
constexpr std::size_t kNonceBytes = 16;

std::string card_key(const GroupSpec& spec, std::uint32_t rank) {
    return fmt::format("{}tcp/{}", spec.prefix, rank);
}

}  // namespace

std::string Directory::key(std::string_view name) const {
    return fmt::format("{}tcp/{}", spec_.prefix, name);
}

std::uint32_t Directory::name_of(std::uint32_t peer) const {
    return peer < spec_.members.size() ? spec_.members[peer] : peer;
}

Result<void> Directory::still_wanted() const {
    const auto asked = spec_.store->find(card_key(spec_, spec_.rank));
    if (asked) return {};
    return std::unexpected(asked.error());
}

void Directory::wait_forever() {
    spec_.timeout = kForever;
}

Result<void> Directory::publish(const sockaddr_storage& address) {
    std::array<std::uint8_t, kNonceBytes> nonce{};
    random_bytes(nonce);
    cards_[spec_.rank] = Card{address, hex(nonce)};
    const KeyStore::Pair card(card_key(spec_, spec_.rank),
                              fmt::format("{} {}", text_of(address), cards_[spec_.rank]->nonce));
    return spec_.store->set({&card, 1});
}

void Directory::refuse(const GroupSpec& spec, const std::string& why) {
    const KeyStore::Pair card(card_key(spec, spec.rank), kRefusal + why);
    // If the store fails, too, peers wait until their own timeout.
    static_cast<void>(spec.store->set({&card, 1}));
}

Result<void> Directory::fetch(std::span<const std::uint32_t> peers,
                              const std::atomic<bool>& ended) {
    std::vector<std::uint32_t> missing;
    std::vector<std::string> keys;
    for (const std::uint32_t peer : peers) {
        if (knows(peer)) continue;
        missing.push_back(peer);
        keys.push_back(card_key(spec_, peer));
    }
    if (missing.empty()) return {};
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
            auto card = read(missing[i], (*values)[i]);
            if (!card) return std::unexpected(card.error());
            cards_[missing[i]] = std::move(*card);
        }
        return {};
    }
}

Result<Directory::Card> Directory::read(std::uint32_t peer, const std::string& value) const {
    if (value.starts_with(kRefusal))
        return fail(Errc::invalid_input, "rank {}: {}", name_of(peer), value.substr(1));
    const std::size_t space = std::min(value.rfind(' '), value.size());
    const auto address = parse_address(std::string_view(value).substr(0, space));
    if (!address) return fail(address.error(), "rank {}", name_of(peer));
    const sockaddr_storage& own = cards_[spec_.rank]->address;
    if (own.ss_family != address->ss_family)
        return fail(Errc::invalid_input,
                    "this rank listens at {} and rank {} at {}: all must use IPv4, or all IPv6 "
                    "(name the interfaces)",
                    text_of(own), name_of(peer), text_of(*address));
    return Card{*address, value.substr(std::min(space + 1, value.size()))};
}

Error Directory::not_come(const std::vector<std::string>& keys,
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

Sha256 Directory::proof(std::string_view word, Kind kind, std::uint32_t from,
                        std::uint32_t to) const {
    const std::string key = cards_[std::min(from, to)]->nonce + cards_[std::max(from, to)]->nonce;
    const std::string text = fmt::format("{} {} {} {} {}", word, static_cast<std::uint32_t>(kind),
                                         from, to, spec_.prefix);
    return hmac_sha256(as_bytes(key), {as_bytes(text)});
}

}  // namespace dtrun::collectives::over_tcp
