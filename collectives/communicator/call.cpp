#include "collectives/communicator/call.h"

#include "collectives/codec/codec.h"
#include "collectives/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dtrun::collectives {

std::string describe(const Call& call) {
    std::string text = call.operation;
    const std::string_view operation = call.operation;
    if (operation != "barrier" && operation != "split")
        text += fmt::format(" of {} {}", call.count, name_of(call.type));
    std::vector<std::string> more;
    if (call.reduce >= 0) more.emplace_back(name_of(static_cast<Reduce>(call.reduce)));
    if (call.root >= 0)
        more.push_back(fmt::format("{} {}", call.collective ? "root" : "rank", call.root));
    if (call.format != 0) more.emplace_back(name_of(static_cast<Format>(call.format)));
    if (call.parts != 0) more.push_back(fmt::format("parts {:08x}", call.parts & 0xffff'ffff));
    for (std::size_t i = 0; i < more.size(); ++i) text += (i == 0 ? " (" : ", ") + more[i];
    return more.empty() ? text : text + ")";
}

std::uint64_t digest(std::span<const std::size_t> counts) {
    std::uint64_t hash = counts.size() + 1;
    for (const std::size_t count : counts) hash = mixed(hash + count);
    return hash;
}

std::uint64_t digest(const Call& call, std::uint64_t number) {
    const std::size_t length = std::strlen(call.operation);
    std::uint64_t name = 0;
    std::memcpy(&name, call.operation, std::min(length, sizeof name));
    const auto small = static_cast<std::uint64_t>(call.type) << 56 |
                       (static_cast<std::uint64_t>(call.reduce + 1) & 0xff) << 48 |
                       (static_cast<std::uint64_t>(call.format) & 0xff) << 40 |
                       (static_cast<std::uint64_t>(call.root + 1) & 0xff'ffff'ffff);
    // Four independent products instead of one chain of them.
    const std::uint64_t hash = (number + length) * 0x9e3779b97f4a7c15 ^ name * 0xc2b2ae3d27d4eb4f ^
                               small * 0x165667b19e3779f9 ^ call.count * 0xff51afd7ed558ccd;
    return mixed(hash + call.parts);
}

static_assert(std::is_trivially_copyable_v<Call>, "it is copied word by word");

void SharedCall::store(const Call& call) {
    std::array<std::uint64_t, kWords> words{};
    std::memcpy(words.data(), &call, sizeof call);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
}

Call SharedCall::load() const {
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    Call call;
    std::memcpy(static_cast<void*>(&call), words.data(), sizeof call);
    return call;
}

}  // namespace dtrun::collectives
