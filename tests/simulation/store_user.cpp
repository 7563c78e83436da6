#include "tests/simulation/store_user.h"

#include "rendezvous/wire/msgpack.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::simulation {
namespace {

using embedded::Outcome;
using Kind = Operation::Kind;

constexpr std::int64_t kForever = -1;
constexpr std::size_t kLargeBytes = 150'000;

Op op_of(Kind kind) {
    static constexpr Op kOps[] = {Op::set,    Op::get,   Op::add,  Op::compare_set,
                                  Op::append, Op::erase, Op::push, Op::pop};
    return kOps[static_cast<int>(kind)];
}

/// Values of many bytes are kept as their beginning, once they have been looked at.
std::string shortened(std::string_view value) {
    const std::size_t large = value.find('~');
    if (large == std::string_view::npos) return std::string(value);
    const std::string_view rest = value.substr(large);
    if (rest.find_first_not_of('~') != std::string_view::npos || rest.size() != kLargeBytes)
        return fmt::format("{} damaged: {} bytes", value.substr(0, large), rest.size());
    return std::string(value.substr(0, large + 1));
}

/// Whether who was at a fence knows that it has failed. Else it knows nothing: it has not been answered, or
/// only that the generation is over by now, in which the fence may well have been complete.
bool is_told(const embedded::Failure& failure) {
    const bool is_of_fence = failure.code == DTRUN_CANCELLED || failure.code == DTRUN_TIMED_OUT;
    const std::string_view text = failure.text;
    return is_of_fence && !text.ends_with(": interrupted") && !text.ends_with(": timed out") &&
           !text.ends_with(": this generation is over");
}

/// Whether who has waited for an operation in vain knows that it was not done, and never will be.
bool is_told_undone(const embedded::Failure& failure) {
    const bool has_given_up = failure.code == DTRUN_CANCELLED || failure.code == DTRUN_TIMED_OUT;
    return has_given_up && !failure.text.ends_with("it may have been done");
}

}  // namespace

StoreUser::StoreUser(Script& script, embedded::Client& client, std::string store, std::string who)
    : script_(script),
      client_(client),
      process_(*script.world.current_process()),
      store_(std::move(store)),
      who_(std::move(who)) {
    script_.users.push_back(this);
}

StoreUser::~StoreUser() {
    std::erase(script_.users, this);
}

Outcome<void> StoreUser::do_something() {
    World& world = script_.world;
    const auto second = std::chrono::duration_cast<seconds>(world.now() - world.begun()).count();
    std::string value = fmt::format("{}#{}", who_, ++values_);
    if (world.draw_chance(0.005)) value += std::string(kLargeBytes, '~');
    const std::string at = fmt::format(".{}.{}", world.draw(3), second);
    switch (world.draw(14)) {
        case 0:
        case 1:
            return ask(Kind::set, "value" + at, value);
        case 2:
        case 3:
            return ask(Kind::get, "value" + at, "");
        case 4:
            return ask(Kind::compare_set, "value" + at, value, last_seen_);
        case 5:
            return ask(Kind::erase, "value" + at, "");
        case 6:
            return ask(Kind::add, "sum" + at, std::to_string(1 + world.draw(9)));
        case 7:
            return ask(Kind::get, "sum" + at, "");
        case 8:
            return ask(Kind::append, "text" + at, fmt::format("{};", values_));
        case 9:
            return ask(Kind::get, "text" + at, "");
        case 10:
            return ask(Kind::push, "queue" + at, value);
        case 11:
            return hold_lock();
        case 12:
            return work_on_items();
        default:
            return ask(Kind::pop, "queue" + at, "");
    }
}

Outcome<void> StoreUser::ask(Kind kind, const std::string& key, const std::string& argument,
                             const std::optional<std::string>& expected) {
    Ledger& ledger = script_.ledger;
    Operation operation;
    operation.kind = kind;
    operation.argument = shortened(argument);
    if (expected) operation.expected = shortened(*expected);
    operation.invoked = script_.world.now();
    operation.who = who_;
    const auto handle = ledger.begin(store_, key, std::move(operation));
    StoreRequest request{.op = op_of(kind), .keys = {key}};
    if (kind == Kind::add)
        request.delta = std::stoll(argument);
    else if (kind != Kind::get && kind != Kind::pop && kind != Kind::erase)
        request.values = {argument};
    if (expected) request.expected = *expected;
    const bool waits = (kind == Kind::get || kind == Kind::pop) && script_.world.draw_chance(0.1);
    const std::int64_t timeout_ms = waits                                    ? 300
                                    : kind == Kind::get || kind == Kind::pop ? 0
                                                                             : kForever;
    const auto answer = client_.request(request, timeout_ms, gives_up);
    Operation& asked = ledger.operation(handle);
    if (!answer && answer.error().code == DTRUN_NOT_FOUND) {
        asked.returned = script_.world.now();
        last_seen_.reset();
        acknowledged();
        return {};
    }
    if (!answer && answer.error().text.find("disk is full") != std::string::npos) {
        ledger.undone(handle);
        return {};
    }
    if (!answer && is_told_undone(answer.error())) ledger.undone(handle);
    if (!answer && answer.error().code == DTRUN_TIMED_OUT) return {};
    if (!answer) return std::unexpected(answer.error());
    take(asked, *answer);
    asked.returned = script_.world.now();
    acknowledged();
    script_.world.note(asked.result ? asked.result->size() : 0);
    return {};
}

void StoreUser::acknowledged() {
    script_.ledger.acknowledged();
    served_ = script_.calm;
}

void StoreUser::see(Operation& operation, std::string_view value) {
    operation.result = shortened(value);
    last_seen_ = value;
}

void StoreUser::take(Operation& operation, const Bytes& results) {
    PackReader in(results);
    (void)in.array();
    switch (operation.kind) {
        case Kind::set:
            return;
        case Kind::get:
        case Kind::pop:
            see(operation, in.bytes());
            return;
        case Kind::add:
            operation.result = std::to_string(in.integer());
            return;
        case Kind::append:
        case Kind::push:
            operation.result = std::to_string(in.uint());
            return;
        case Kind::erase:
            operation.was_set = in.boolean();
            return;
        case Kind::compare_set:
            operation.was_set = in.boolean();
            last_seen_.reset();
            if (!in.nil()) see(operation, in.bytes());
            return;
    }
}

/// Generations of different jobs may have the same number: each has the name that its first member
/// puts into its store.
Outcome<void> StoreUser::take_place(const std::string& member) {
    const StoreRequest request{
        .op = Op::compare_set, .keys = {"generation"}, .values = {who_}, .expected = {}};
    const auto answer = client_.request(request, kForever, gives_up);
    if (!answer) return std::unexpected(answer.error());
    PackReader in(*answer);
    (void)in.array();
    group_ = in.boolean() ? who_ : std::string(in.bytes());
    group_ += fmt::format(" ({})", client_.generation());
    store_ = group_;
    round_ = 0;
    const embedded::RankInfo info = client_.rank_info();
    script_.ledger.placed(
        {group_, info.generation, info.rank, info.world_size, member.empty() ? who_ : member});
    return {};
}

void StoreUser::told_end(const std::string& why) {
    if (!group_.empty()) script_.ledger.job_ended(group_, who_, why);
}

Outcome<void> StoreUser::meet() {
    const embedded::RankInfo info = client_.rank_info();
    const std::uint64_t round = round_++;
    const std::string bytes = fmt::format("{} of {}", info.rank, round);
    const std::int64_t timeout_ms = script_.world.draw_chance(0.3) ? kForever : 3'000;
    const auto met = client_.fence("step", bytes, timeout_ms, gives_up);
    std::map<std::uint32_t, std::string> entries;
    if (met)
        for (const FenceEntry& entry : *met) entries[std::to_underlying(entry.rank)] = entry.bytes;
    if (met && (entries.size() != info.world_size || entries.at(info.rank) != bytes))
        throw Contradiction(fmt::format("fence {} of {} is complete with {} of {} ranks", round,
                                        group_, entries.size(), info.world_size));
    if (met || is_told(met.error()))
        script_.ledger.fence_ended(group_, round, info.rank, met.has_value(), entries);
    if (met) acknowledged();
    if (!met && met.error().code != DTRUN_CANCELLED && met.error().code != DTRUN_TIMED_OUT)
        return std::unexpected(met.error());
    return {};
}

void pause(World& world, microseconds most) {
    world.poll(-1, 0, world.now() + world.draw_time(microseconds(0), most));
}

}  // namespace dtrun::simulation
