#include "rendezvous/asking/store_order.h"

#include <algorithm>
#include <iterator>

namespace dtrun::asking {
namespace {

using Verb = StoreOrder::Verb;

constexpr StoreVerb kStoreVerbs[] = {
    {"get", Verb::get, "KEY", 1, 1},        {"set", Verb::set, "KEY VALUE|-", 2, 2},
    {"add", Verb::add, "KEY NUMBER", 2, 2}, {"wait", Verb::wait, "KEY...", 1, 10'000},
    {"watch", Verb::watch, "KEY", 1, 1},    {"ls", Verb::list, "[PREFIX]", 0, 1},
    {"rm", Verb::erase, "KEY", 1, 1},       {"drop", Verb::drop, "", 0, 0},
};

}  // namespace

constexpr std::string_view kStoreHelp =
    R"(usage: dtrun store get|set|add|wait|watch|ls|rm|drop [options] ...

Looks into the store of a job of `dtrun serve`; inside a rank, of its own job.
  get KEY                   the value
  set KEY VALUE             VALUE may be -, for standard input
  add KEY NUMBER            the sum; a missing key counts as 0
  wait KEY...               until all exist
  watch KEY                 the value whenever it changes, until Ctrl-C; that it
                            was removed is told on standard error
  ls [PREFIX]               keys, one on a line
  rm KEY
  drop                      forgets the job, with all its keys, unless it has
                            members; a new run of its name begins with nothing
What begins with a dash stands behind "--".

Exit code: 0; 1 the key or job is not there, or not in time; 2 the key holds
something else, such as a queue; 3 the store refuses it, being full for example;
200 wrong words or input; 201 the daemon cannot be reached, or does not answer;
202 the secret is wrong; 210 standard output cannot be written.
)";

Result<StoreVerb> find_store_verb(std::string_view name) {
    if (name.empty())
        return fail(Errc::invalid_input,
                    "dtrun store what? get, set, add, wait, watch, ls, rm or drop");
    const auto* const verb = std::ranges::find(kStoreVerbs, name, &StoreVerb::name);
    if (verb == std::end(kStoreVerbs))
        return fail(Errc::invalid_input,
                    "'{}' is none of get, set, add, wait, watch, ls, rm and drop; see dtrun store "
                    "--help",
                    name);
    return *verb;
}

Result<void> check_operands(const StoreVerb& verb, std::span<const std::string> operands) {
    if (operands.size() >= verb.min && operands.size() <= verb.max) return {};
    return fail(Errc::invalid_input, "usage: dtrun {}{} [options] {}",
                verb.verb == Verb::status ? "" : "store ", verb.name, verb.operands);
}

}  // namespace dtrun::asking
