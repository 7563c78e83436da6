#include "rendezvous/asking/store_order.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdint>
#include <iterator>

namespace dtrun::asking {
namespace {

using Shows = StoreVerb::Shows;

constexpr StoreVerb kStoreVerbs[] = {
    {"get", "KEY", 1, 1, Op::get, Shows::value, "the value"},
    {"set", "KEY VALUE|-", 2, 2, Op::set, Shows::nothing, "", "--ttl", Op::put},
    {"create", "KEY VALUE|-", 2, 2, Op::compare_set, Shows::was_set,
     "unless the key is there; else prints its value, and\nexits 1"},
    {"compare-set", "KEY EXPECTED VALUE|-", 3, 3, Op::compare_set, Shows::was_set,
     "sets it if its value is the expected one; else\nprints the value that it has, if any, and "
     "exits 1"},
    {"append", "KEY VALUE|-", 2, 2, Op::append, Shows::number,
     "prints the number of bytes that the value has now"},
    {"add", "KEY NUMBER", 2, 2, Op::add, Shows::number,
     "prints the sum; a missing key counts as 0"},
    {"push", "KEY VALUE|-", 2, 2, Op::push, Shows::number,
     "adds to the end of a queue; prints its length"},
    {"pop", "KEY", 1, 1, Op::pop, Shows::value,
     "takes the oldest value off a queue: each value is\ngot once"},
    {"length", "KEY", 1, 1, Op::length, Shows::number, "of a queue"},
    {"wait", "KEY...", 1, 10'000, Op::wait, Shows::nothing, "until all exist"},
    {"watch", "KEY", 1, 1, Op::watch, Shows::changes,
     "prints the value whenever it changes, until Ctrl-C;\na removal is reported on standard error",
     "--prefix", Op::watch_prefix},
    {"ls", "[PREFIX]", 0, 1, Op::list, Shows::keys, "keys, one per line"},
    {"count", "", 0, 0, Op::count, Shows::number, "how many keys and queues there are"},
    {"rm", "KEY", 1, 1, Op::erase, Shows::existed, "", "--prefix", Op::erase_prefix},
    {"lock", "NAME [--] COMMAND...", 2, SIZE_MAX, Op::lock, Shows::nothing,
     "waits until nobody else holds NAME, holds it while\nCOMMAND runs, and exits as COMMAND does",
     "--value", Op::lock},
    {"drop", "", 0, 0, Op::drop, Shows::dropped,
     "forgets the job and all its keys, unless it has\nmembers; the next run of that name starts "
     "empty"},
};

/// "get, set or rm": all of them.
std::string verb_names() {
    std::string names(kStoreVerbs[0].name);
    for (const StoreVerb& verb : std::span(kStoreVerbs).subspan(1))
        names += fmt::format("{}{}", &verb == std::end(kStoreVerbs) - 1 ? " or " : ", ", verb.name);
    return names;
}

/// The words on the left, what they do on the right, or below where there is no room.
std::string help_of(const StoreVerb& verb) {
    constexpr std::size_t kColumn = 28;
    const std::string below = "\n" + std::string(kColumn, ' ');
    const auto operands = verb.operands.substr(0, verb.operands.find("|-"));
    std::string line = fmt::format("  {} {}", verb.name, operands);
    if (!verb.help.empty())
        line = line.size() < kColumn ? fmt::format("{:<{}}", line, kColumn) : line + below;
    for (const char c : verb.help) line += c == '\n' ? below : std::string(1, c);
    return line + "\n";
}

}  // namespace

std::string store_words_help() {
    std::string help = R"(usage: dtrun store WORD [options] [OPERANDS]

Reads and writes the key-value store of a job of `dtrun serve`; inside a rank,
that of its own job.
)";
    for (const StoreVerb& verb : kStoreVerbs) help += help_of(verb);
    return help +
           R"(VALUE may be -, for standard input. Put "--" before words that begin with '-'.

COMMAND finds NAME in DTRUN_LOCK, and in DTRUN_LOCK_TOKEN a number that grows
with every holder, so that whatever it writes to can refuse a holder whose
number is smaller than the last one.

Exit code: 0; 1 the key or job is not there, not in time, or has another value;
2 the key holds something else, such as a queue; 3 the store refuses it; 4 the
store or its disk is full; 200 wrong arguments or input; 201 the daemon cannot
be reached, or does not answer; 202 the secret is wrong; 210 standard output
cannot be written. lock: COMMAND's own; 126, 127 it cannot be run, or is not
there; 204 NAME was lost, so COMMAND was ended; 205 NAME was not free in time.
)";
}

Result<StoreVerb> find_store_verb(std::string_view name) {
    if (name.empty()) return fail(Errc::invalid_input, "dtrun store what? {}", verb_names());
    const auto* const verb = std::ranges::find(kStoreVerbs, name, &StoreVerb::name);
    if (verb == std::end(kStoreVerbs))
        return fail(Errc::invalid_input, "there is no '{}', but {}; see dtrun store --help", name,
                    verb_names());
    return *verb;
}

Result<void> take_verb(StoreOrder& order, const StoreVerb& verb) {
    const std::size_t operands = order.operands.size();
    if (operands < verb.min || operands > verb.max)
        return fail(Errc::invalid_input, "usage: dtrun {}{} [options] {}",
                    verb.op == Op::status ? "" : "store ", verb.name, verb.operands);
    order.verb = verb;
    const std::pair<bool, std::string_view> given[] = {{order.ttl.has_value(), "--ttl"},
                                                       {order.is_prefix, "--prefix"},
                                                       {order.holder.has_value(), "--value"}};
    for (const auto& [is_given, option] : given) {
        if (!is_given) continue;
        if (option != verb.option)
            return fail(Errc::invalid_input, "{} has no {}; see dtrun store --help", verb.name,
                        option);
        order.verb.op = verb.op_with_option;
    }
    if (order.ttl && order.ttl->count() == 0)
        return fail(Errc::invalid_input, "--ttl: a key that is there for 0 s is not set");
    return {};
}

}  // namespace dtrun::asking
