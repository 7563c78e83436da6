#include "rendezvous/asking/store_order.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>

namespace dtrun::asking {
namespace {

using Verb = StoreOrder::Verb;

constexpr StoreVerb kStoreVerbs[] = {
    {"get", Verb::get, "KEY", 1, 1},
    {"set", Verb::set, "KEY VALUE|-", 2, 2},
    {"create", Verb::create, "KEY VALUE|-", 2, 2},
    {"compare-set", Verb::compare_set, "KEY EXPECTED VALUE|-", 3, 3},
    {"append", Verb::append, "KEY VALUE|-", 2, 2},
    {"add", Verb::add, "KEY NUMBER", 2, 2},
    {"push", Verb::push, "KEY VALUE|-", 2, 2},
    {"pop", Verb::pop, "KEY", 1, 1},
    {"length", Verb::length, "KEY", 1, 1},
    {"wait", Verb::wait, "KEY...", 1, 10'000},
    {"watch", Verb::watch, "KEY", 1, 1},
    {"ls", Verb::list, "[PREFIX]", 0, 1},
    {"count", Verb::count, "", 0, 0},
    {"rm", Verb::erase, "KEY", 1, 1},
    {"drop", Verb::drop, "", 0, 0},
};

/// "get, set or rm": all of them.
std::string verb_names() {
    std::string names;
    const std::size_t count = std::size(kStoreVerbs);
    for (std::size_t i = 0; i < count; ++i)
        names += fmt::format("{}{}",
                             i == 0           ? ""
                             : i + 1 == count ? " or "
                                              : ", ",
                             kStoreVerbs[i].name);
    return names;
}

}  // namespace

constexpr std::string_view kStoreHelp =
    R"(usage: dtrun store WORD [options] [OPERANDS]

Looks into the store of a job of `dtrun serve`; inside a rank, of its own job.
  get KEY                   the value
  set KEY VALUE
  create KEY VALUE          unless the key is there; else prints its value, 1
  compare-set KEY EXPECTED VALUE
                            sets it if its value is the expected one; else
                            prints the value that it has, if any, and exits 1
  append KEY VALUE          the value's bytes now
  add KEY NUMBER            the sum; a missing key counts as 0
  push KEY VALUE            at the end of a queue; its length now
  pop KEY                   the oldest value of a queue, which each gets once
  length KEY                of a queue
  wait KEY...               until all exist
  watch KEY                 the value whenever it changes, until Ctrl-C; that it
                            was removed is told on standard error
  ls [PREFIX]               keys, one on a line
  count                     how many keys and queues there are
  rm KEY
  drop                      forgets the job, with all its keys, unless it has
                            members; a new run of its name begins with nothing
VALUE may be -, for standard input. What begins with a dash stands behind "--".

Exit code: 0; 1 the key or job is not there, not in time, or has another value;
2 the key holds something else, such as a queue; 3 the store refuses it, being
full for example; 200 wrong words or input; 201 the daemon cannot be reached, or
does not answer; 202 the secret is wrong; 210 standard output cannot be written.
)";

Result<StoreVerb> find_store_verb(std::string_view name) {
    if (name.empty()) return fail(Errc::invalid_input, "dtrun store what? {}", verb_names());
    const auto* const verb = std::ranges::find(kStoreVerbs, name, &StoreVerb::name);
    if (verb == std::end(kStoreVerbs))
        return fail(Errc::invalid_input, "there is no '{}', but {}; see dtrun store --help", name,
                    verb_names());
    return *verb;
}

Result<void> check_operands(const StoreVerb& verb, std::span<const std::string> operands) {
    if (operands.size() >= verb.min && operands.size() <= verb.max) return {};
    return fail(Errc::invalid_input, "usage: dtrun {}{} [options] {}",
                verb.verb == Verb::status ? "" : "store ", verb.name, verb.operands);
}

}  // namespace dtrun::asking
