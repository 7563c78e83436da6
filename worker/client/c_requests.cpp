#include "base/sized_struct.h"
#include "worker/client/c_results.h"
#include "worker/client/c_worker.h"
#include "worker/client/client.h"
#include "worker/client/request_texts.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

// The functions of <dtrun.h> for requests that nobody waits for.

namespace dtrun::embedded {
namespace {

/// Whether programs may ask for it.
bool is_known(int operation) {
    switch (operation) {
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    case number:                                                   \
        return std::string_view(function) != "store";
#include "rendezvous/wire/operations.def"
        default:
            return false;
    }
}

/// \param owner  who we are
Outcome<StoreRequest> request_of(const dtrun_submission& given, std::uint64_t owner) {
    if (!is_known(given.operation))
        return failure(DTRUN_INVALID, "submit: no operation has the number {}", given.operation);
    StoreRequest request{.op = static_cast<Op>(given.operation)};
    for (const dtrun_view key : std::span(given.keys, given.key_count))
        request.keys.push_back(text_of(key));
    for (const dtrun_view value : std::span(given.values, given.value_count))
        request.values.push_back(text_of(value));
    if (given.expected != nullptr) request.expected = text_of(*given.expected);
    request.after = text_of(given.after);
    request.delta = given.delta;
    request.number = given.number;
    request.limit = given.limit;
    if (given.ttl_ms > 0) request.ttl_ms = static_cast<std::uint64_t>(given.ttl_ms);
    for (const dtrun_condition& condition : std::span(given.conditions, given.condition_count))
        request.conditions.push_back(condition_of(condition));
    for (const dtrun_action& action : std::span(given.actions, given.action_count))
        request.actions.push_back(action_of(action));
    if ((given.flags & ~DTRUN_EPHEMERAL) != 0)
        return failure(DTRUN_INVALID, "submit: unknown flags");
    if (request.op == Op::list && request.number == 0)
        return failure(DTRUN_INVALID, "submit: limit is 0");
    const bool is_ours = request.op != Op::put || (given.flags & DTRUN_EPHEMERAL) != 0;
    if (is_ours) request.owner = owner;
    if (const auto whole = request.check(); !whole)
        return failure(DTRUN_INVALID, "submit: {}", whole.error().message);
    return request;
}

/// Takes the results to their places, in the order of docs/PROTOCOL.md.
void read_results(Op op, Results& from, dtrun_completion& to) {
    switch (op) {
        case Op::get:
        case Op::pop:
            return take(from, &to.value);
        case Op::add:
        case Op::append:
        case Op::push:
        case Op::length:
        case Op::count:
        case Op::lock:
        case Op::erase_prefix:
            return take(from, &to.number);
        case Op::check:
        case Op::erase:
        case Op::unlock:
        case Op::acknowledge:
        case Op::give_back:
            return take(from, &to.yes);
        case Op::compare_set:
            take(from, &to.yes);
            return take(from, &to.value);
        case Op::multi_get:
            return take(from, &to.items);
        case Op::list:
            take(from, Keys{&to.items, "items"});
            return take(from, &to.yes);
        case Op::watch:
            take(from, &to.number);
            return take(from, &to.value);
        case Op::claim:
            take(from, &to.value);
            return take(from, &to.number);
        case Op::transact:
            take(from, &to.yes);
            return take(from, &to.number);
        case Op::watch_prefix:
            take(from, &to.number);
            return take(from, &to.changes);
        case Op::set:
        case Op::wait:
        case Op::multi_set:
        case Op::put:
        case Op::cancel:
        case Op::status:
        case Op::drop:
        case Op::own:
            return;
    }
}

Outcome<void> deliver(const Requests::Completion& ended, dtrun_completion& place) {
    dtrun_completion own{};
    own.size = place.size;
    own.id = ended.number;
    own.argument = ended.submission.argument;
    own.operation = static_cast<int>(ended.submission.op);
    if (ended.results) {
        Results from{PackReader(*ended.results), ended.submission.prefix_bytes};
        from.in.array();
        try {
            read_results(ended.submission.op, from, own);
        } catch (const std::bad_alloc&) {  // it has ended, and that is not told twice
            own.code = keep_error(DTRUN_INTERNAL, "not enough memory for the answer of the store");
        }
        const dtrun_key_changes& changes = own.changes;
        if (own.code == DTRUN_OK && ended.submission.op == Op::watch_prefix && changes.count == 0 &&
            changes.complete == 0) {
            dtrun_free(std::exchange(own.changes.items, nullptr));
            const StoreRequest asked{.op = Op::watch_prefix};
            const Failure none{DTRUN_TIMED_OUT, {}};
            own.code =
                keep_error(DTRUN_TIMED_OUT, named(asked, ended.submission.timeout_ms, none).text);
        }
        if (!from.in.ok()) own.code = keep_error(DTRUN_INTERNAL, "malformed answer of the store");
    } else {
        own.code = keep_error(ended.results.error().code, ended.results.error().text);
    }
    std::memcpy(&place, &own, std::min(place.size, sizeof own));
    return {};
}

}  // namespace
}  // namespace dtrun::embedded

using namespace dtrun::embedded;

extern "C" {

int dtrun_submit(dtrun_worker* worker, const dtrun_submission* request, uint64_t* id) {
    return call(worker, [&](Client& client, std::function<bool()> give_up) -> Outcome<void> {
        if (request == nullptr) return failure(DTRUN_INVALID, "submit: request is NULL");
        const auto given = dtrun::read_sized(*request, sizeof *request, "dtrun_submission");
        if (!given) return failure(DTRUN_INVALID, "submit: {}", given.error().message);
        auto asked = request_of(*given, client.owner());
        if (!asked) return std::unexpected(asked.error());
        const bool has_own_timeout = may_wait(asked->op) || given->timeout_ms > 0;
        const std::int64_t timeout_ms = has_own_timeout ? given->timeout_ms : call_timeout(worker);
        const Prefixed prefixed(worker->prefix, *asked);
        const Requests::Submission submission{.timeout_ms = timeout_ms,
                                              .argument = given->argument,
                                              .prefix_bytes = worker->prefix.size(),
                                              .more = given->more != 0};
        const auto number = client.submit(*asked, submission, std::move(give_up));
        if (!number) return std::unexpected(number.error());
        if (id != nullptr) *id = *number;
        return {};
    });
}

int dtrun_complete(dtrun_worker* worker, int64_t timeout_ms, dtrun_completion* completion) {
    return call(worker, [&](Client& client, std::function<bool()> give_up) -> Outcome<void> {
        if (completion == nullptr) return failure(DTRUN_INVALID, "complete: completion is NULL");
        if (completion->size < sizeof *completion)
            return failure(DTRUN_INVALID,
                           "complete: size is {}, set it to sizeof(dtrun_completion)",
                           completion->size);
        auto ended = client.complete({moment_after(timeout_ms), std::move(give_up)});
        if (!ended) return std::unexpected(named("complete", timeout_ms, ended.error()));
        const auto delivered = deliver(*ended, *completion);
        if (ended->results) client.reuse(std::move(*ended->results));
        return delivered;
    });
}

int dtrun_cancel(dtrun_worker* worker, uint64_t id) {
    return call(worker, [&](Client& client, const std::function<bool()>&) -> Outcome<void> {
        if (client.cancel(id)) return {};
        return failure(DTRUN_NOT_FOUND, "cancel: no request of that number is under way");
    });
}

}  // extern "C"
