// What a user of a store does with locks, and with items that it claims.

#include "rendezvous/wire/msgpack.h"
#include "tests/simulation/store_user.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::simulation {
namespace {

using embedded::Outcome;

constexpr std::int64_t kNoLimit = -1;
constexpr std::uint32_t kNames = 3;  // of locks, and of queues
/// How long the items of those who have gone may take to come back: as long as the daemon waits for a process
/// that stands still, and more.
constexpr std::int64_t kComeBackMs = 30'000;

/// What became of a request that was not answered by a result.
bool is_no_failure(const embedded::Failure& why) {
    return why.code == DTRUN_NOT_FOUND || why.code == DTRUN_TIMED_OUT ||
           why.code == DTRUN_CANCELLED || why.text.find("disk is full") != std::string::npos;
}

}  // namespace

Outcome<std::optional<Bytes>> StoreUser::ask_owned(StoreRequest request, std::int64_t timeout_ms,
                                                   OwnedLedger::Span& span) {
    request.owner = client_.owner();
    span.invoked = script_.world.now();
    auto answer = client_.request(std::move(request), timeout_ms, gives_up);
    span.returned = script_.world.now();
    if (answer) {
        acknowledged();
        return std::optional(std::move(*answer));
    }
    if (is_no_failure(answer.error())) return std::optional<Bytes>();
    return std::unexpected(answer.error());
}

/// \param is_known  whether anybody knows: else it may have been done
Outcome<bool> StoreUser::ask_whether(const StoreRequest& request, OwnedLedger::Span& span,
                                     bool& is_known) {
    is_known = false;
    const auto answer = ask_owned(request, kNoLimit, span);
    if (!answer) return std::unexpected(answer.error());
    is_known = answer->has_value();
    if (!is_known) return false;
    PackReader in(**answer);
    (void)in.array();
    return in.boolean();
}

Outcome<void> StoreUser::hold_lock() {
    World& world = script_.world;
    const std::string key = fmt::format("lock{}", world.draw(kNames));
    const std::string name = store_ + " " + key;
    OwnedLedger::Span span{};
    std::int64_t limit_ms = world.draw_chance(0.3) ? 0 : 300;
    if (script_.calm) limit_ms = kNoLimit;  // nobody keeps one any more without knowing of it
    const auto given = ask_owned({.op = Op::lock, .keys = {key}, .values = {who_}}, limit_ms, span);
    if (!given) return std::unexpected(given.error());
    if (!*given) return {};
    PackReader in(**given);
    (void)in.array();
    const std::uint64_t token = in.uint();
    script_.owned.locked(name, token, span);
    bool is_known = false;
    for (int writes = 0; writes < 2; ++writes) {
        if (world.draw_chance(0.2)) pause(world, milliseconds(200));
        StoreRequest write{.op = Op::transact};
        write.conditions = {{key, Condition::Kind::revision, {}, token}};
        write.actions = {{Action::Kind::set, "written", who_}};
        const auto written = ask_whether(write, span, is_known);
        if (!written) return std::unexpected(written.error());
        if (*written) script_.owned.wrote(name, token, span);
    }
    const auto freed =
        ask_whether({.op = Op::unlock, .keys = {key}, .number = token}, span, is_known);
    if (!freed) return std::unexpected(freed.error());
    if (*freed) script_.owned.unlocked(name, token, span);
    return {};
}

Outcome<void> StoreUser::work_on_items() {
    World& world = script_.world;
    const std::string key = fmt::format("items{}", world.draw(kNames));
    if (world.draw_chance(0.5)) {
        const Outcome<bool> finished = finish_item(key, world.draw_chance(0.5) ? 0 : 300);
        if (!finished) return std::unexpected(finished.error());
        return {};
    }
    const std::string item = fmt::format("{}#{}", who_, ++values_);
    OwnedLedger::Span span{};
    const auto pushed =
        ask_owned({.op = Op::push, .keys = {key}, .values = {item}}, kNoLimit, span);
    if (!pushed) return std::unexpected(pushed.error());
    if (*pushed) script_.owned.pushed(store_ + " " + key, item);
    return {};
}

/// \return whether there was one
Outcome<bool> StoreUser::finish_item(const std::string& key, std::int64_t timeout_ms) {
    World& world = script_.world;
    const std::string name = store_ + " " + key;
    OwnedLedger::Span span{};
    const auto given = ask_owned({.op = Op::claim, .keys = {key}}, timeout_ms, span);
    if (!given) return std::unexpected(given.error());
    if (!*given) return false;
    PackReader in(**given);
    (void)in.array();
    const std::string item(in.bytes());
    const std::uint64_t number = in.uint();
    script_.owned.claimed(name, item, span);
    if (world.draw_chance(0.2)) pause(world, milliseconds(100));
    const bool is_done = script_.calm || world.draw_chance(0.8);
    const Op op = is_done ? Op::acknowledge : Op::give_back;
    if (is_done) script_.owned.acknowledges(name, item);
    bool is_known = false;
    const auto ended = ask_whether({.op = op, .keys = {key}, .number = number}, span, is_known);
    if (!ended) return std::unexpected(ended.error());
    if (is_done && *ended) script_.owned.acknowledged(name, item, span);
    if (is_done && is_known && !*ended) script_.owned.not_acknowledged(name, item);
    return true;
}

Outcome<void> StoreUser::drain_items() {
    for (std::uint32_t number = 0; number < kNames; ++number) {
        const std::string key = fmt::format("items{}", number);
        while (!script_.owned.left_in(store_ + " " + key).empty()) {
            const auto there = finish_item(key, kComeBackMs);
            if (!there) return std::unexpected(there.error());
            if (!*there)
                return embedded::failure(DTRUN_NOT_FOUND, "{} has lost '{}'", key,
                                         *script_.owned.left_in(store_ + " " + key).begin());
        }
    }
    return {};
}

}  // namespace dtrun::simulation
