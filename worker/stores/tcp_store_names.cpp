#include "worker/stores/tcp_store_names.h"

#include "base/strings.h"

#include <algorithm>

namespace dtrun::stores {
namespace {

constexpr std::size_t kShownBytesMax = 200;
constexpr long long kRankMax = 0x7fff'ffff;

bool take(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

template <class Is>
std::string_view take_while(std::string_view& text, Is is) {
    const auto end = std::ranges::find_if_not(text, is);
    const std::string_view taken = text.substr(0, static_cast<std::size_t>(end - text.begin()));
    text.remove_prefix(taken.size());
    return taken;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// Without the slash that torch's client puts before every key, and what torch before 2.6 adds to
/// tell one attempt of a job from the next.
std::string_view own_part(std::string_view key) {
    take(key, "/");
    std::string_view rest = key;
    if (take(rest, "/worker/attempt_") && !take_while(rest, is_digit).empty() && take(rest, "/"))
        return rest;
    return key;
}

}  // namespace

std::optional<std::uint32_t> torch_init_rank(std::string_view key) {
    std::string_view rest = own_part(key);
    if (!take(rest, "default_pg/0/")) return {};
    if (take(rest, "/")) {
        const auto of_device = [](char c) { return c >= 'a' && c <= 'z'; };
        if (take_while(rest, of_device).empty() || !take(rest, "//")) return {};
    }
    if (!take(rest, "0/")) return {};
    take(rest, "rank_");
    if (rest.empty() || !std::ranges::all_of(rest, is_digit)) return {};
    const auto rank = to_int(rest, 0, kRankMax);
    if (!rank) return {};
    return static_cast<std::uint32_t>(*rank);
}

std::string shown_torch_key(std::string_view key) {
    const std::string_view own = own_part(key);
    std::string shown(own.substr(0, kShownBytesMax));
    for (char& c : shown)
        if (c < ' ' || c > '~') c = '?';
    if (own.size() > shown.size()) shown += "...";
    return shown;
}

}  // namespace dtrun::stores
