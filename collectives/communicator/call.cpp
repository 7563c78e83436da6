#include "collectives/communicator/call.h"

#include "collectives/codec/codec.h"
#include "collectives/operation.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dtrun::collectives {

std::string describe(const Call& call) {
    std::string text = call.operation.text;
    const std::string_view operation = call.operation.text;
    if (operation != "barrier" && operation != "split")
        text += fmt::format(" of {} {}", call.count, name_of(call.type));
    std::vector<std::string> more;
    if (call.reduce >= 0) more.emplace_back(name_of(static_cast<Reduce>(call.reduce)));
    if (call.root >= 0)
        more.push_back(fmt::format("{} {}", call.collective ? "root" : "rank", call.root));
    if (call.format != 0) more.emplace_back(name_of(static_cast<Format>(call.format)));
    if (call.on_trial) more.emplace_back("on trial");
    if (call.parts != 0) more.push_back(fmt::format("parts {:08x}", call.parts & 0xffff'ffff));
    for (std::size_t i = 0; i < more.size(); ++i) text += (i == 0 ? " (" : ", ") + more[i];
    return more.empty() ? text : text + ")";
}

std::uint64_t digest(std::span<const std::size_t> counts) {
    std::uint64_t hash = counts.size() + 1;
    for (const std::size_t count : counts) hash = mixed(hash + count);
    return hash;
}

static_assert(std::is_trivially_copyable_v<Call>, "it is copied word by word");

Call SharedCall::load() const {
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    Call call;
    std::memcpy(static_cast<void*>(&call), words.data(), sizeof call);
    return call;
}

}  // namespace dtrun::collectives
