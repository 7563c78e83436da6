#include "worker/client/c_results.h"
#include "worker/client/c_worker.h"
#include "worker/client/client.h"
#include "worker/client/request_texts.h"

#include <span>
#include <type_traits>

// The functions of <dtrun.h> for the operations of the store. Each names the parts of its call: what is asked,
// and then where the results go, in the order of docs/PROTOCOL.md.

namespace dtrun::embedded {
namespace {

struct Call {
    StoreRequest request;
    std::int64_t timeout_ms;
    std::uint64_t owner;  ///< who we are
};

/// A result that the caller must have a place for. Other places may be NULL.
template <class T>
struct Needed {
    T* place;
    const char* name;
};
template <class T>
Needed(T*, const char*) -> Needed<T>;  // which clang before 17 does not deduce
struct Limit {
    std::uint32_t keys;  ///< at least 1
};
struct Timeout {
    std::int64_t ms;
};
/// What is to be set, or asked about, is the caller's own.
struct Mine {
    bool is_mine = true;
};
struct Number {
    std::uint64_t value;
};

// Each puts a part of the call into what is asked: keys come before values, and a function does what only one
// operation has.
void ask_for(Call& call, std::span<const dtrun_view> views) {
    auto& texts = call.request.keys.empty() ? call.request.keys : call.request.values;
    texts.reserve(views.size());
    for (const dtrun_view view : views) texts.push_back(text_of(view));
}
void ask_for(Call& call, dtrun_view view) {
    ask_for(call, std::span(&view, 1));
}
void ask_for(Call& call, Limit part) {
    call.request.number = part.keys;
}
void ask_for(Call& call, Timeout part) {
    call.timeout_ms = part.ms;
}
void ask_for(Call& call, Mine part) {
    if (part.is_mine) call.request.owner = call.owner;
}
void ask_for(Call& call, Number part) {
    call.request.number = part.value;
}
template <class Part>
void ask_for(Call& call, Part part) {
    if constexpr (std::is_invocable_v<Part, StoreRequest&>) part(call.request);
}

// Parts that are no places take nothing.
template <class T>
void take(Results& from, Needed<T> part) {
    take(from, part.place);
}
template <class Part>
void take(Results&, Part) {}

template <class T>
void check(Outcome<void>& valid, Needed<T> part) {
    if (valid && part.place == nullptr) valid = failure(DTRUN_INVALID, "{} is NULL", part.name);
}
void check(Outcome<void>& valid, Keys part) {
    check(valid, Needed<dtrun_list>{part.place, part.name});
}
void check(Outcome<void>& valid, Limit part) {
    if (valid && part.keys == 0) valid = failure(DTRUN_INVALID, "limit is 0");
}
template <class Part>
void check(Outcome<void>&, Part) {}

template <class... Parts>
int ask(dtrun_worker* worker, Op op, Parts... parts) {
    return call(worker, [&](Client& client, std::function<bool()> give_up) -> Outcome<void> {
        Outcome<void> valid;
        (check(valid, parts), ...);
        if (!valid)
            return failure(valid.error().code, "{}: {}", function_of(op), valid.error().text);
        Call asked{{.op = op}, call_timeout(worker), client.owner()};
        (ask_for(asked, parts), ...);
        const Prefixed prefixed(worker->prefix, asked.request);
        const std::size_t prefix_bytes =
            worker->prefix.size();  // the handle may be closed meanwhile
        auto results =
            client.request(std::move(asked.request), asked.timeout_ms, std::move(give_up));
        if (!results) return std::unexpected(results.error());
        Results from{PackReader(*results), prefix_bytes};
        from.in.array();
        (take(from, parts), ...);
        client.reuse(std::move(*results));
        if (!from.in.ok()) return failure(DTRUN_INTERNAL, "malformed answer of the store");
        return {};
    });
}

}  // namespace
}  // namespace dtrun::embedded

using namespace dtrun::embedded;
using dtrun::Op;
using dtrun::StoreRequest;

extern "C" {

int dtrun_set(dtrun_worker* worker, dtrun_view key, dtrun_view value) {
    return ask(worker, Op::set, key, value);
}

int dtrun_get(dtrun_worker* worker, dtrun_view key, int64_t timeout_ms, dtrun_bytes* value) {
    return ask(worker, Op::get, key, Timeout{timeout_ms}, Needed{value, "value"});
}

int dtrun_wait(dtrun_worker* worker, const dtrun_view* keys, size_t count, int64_t timeout_ms) {
    return ask(worker, Op::wait, std::span(keys, count), Timeout{timeout_ms});
}

int dtrun_add(dtrun_worker* worker, dtrun_view key, int64_t delta, int64_t* sum) {
    const auto by = [&](StoreRequest& request) { request.delta = delta; };
    return ask(worker, Op::add, key, by, sum);
}

int dtrun_compare_set(dtrun_worker* worker, dtrun_view key, const dtrun_view* expected,
                      dtrun_view desired, int* was_set, dtrun_bytes* now) {
    const auto before = [&](StoreRequest& request) {
        if (expected != nullptr) request.expected = text_of(*expected);
    };
    return ask(worker, Op::compare_set, key, before, desired, was_set, now);
}

int dtrun_append(dtrun_worker* worker, dtrun_view key, dtrun_view value, uint64_t* size) {
    return ask(worker, Op::append, key, value, size);
}

int dtrun_exists(dtrun_worker* worker, const dtrun_view* keys, size_t count, int* exist) {
    return ask(worker, Op::check, std::span(keys, count), Needed{exist, "exist"});
}

int dtrun_check(dtrun_worker* worker, const dtrun_view* keys, size_t count, int* exist) {
    return dtrun_exists(worker, keys, count, exist);
}

int dtrun_delete(dtrun_worker* worker, dtrun_view key, int* existed) {
    return ask(worker, Op::erase, key, existed);
}

int dtrun_erase(dtrun_worker* worker, dtrun_view key, int* existed) {
    return dtrun_delete(worker, key, existed);
}

int dtrun_multi_get(dtrun_worker* worker, const dtrun_view* keys, size_t count, int64_t timeout_ms,
                    dtrun_list* values) {
    return ask(worker, Op::multi_get, std::span(keys, count), Timeout{timeout_ms},
               Needed{values, "values"});
}

int dtrun_multi_set(dtrun_worker* worker, const dtrun_view* keys, const dtrun_view* values,
                    size_t count) {
    return ask(worker, Op::multi_set, std::span(keys, count), std::span(values, count));
}

int dtrun_list_keys(dtrun_worker* worker, dtrun_view prefix, dtrun_view after, uint32_t limit,
                    dtrun_list* keys, int* more) {
    const auto behind = [&](StoreRequest& request) { request.after = text_of(after); };
    return ask(worker, Op::list, prefix, behind, Keys{keys, "keys"}, Limit{limit}, more);
}

int dtrun_push(dtrun_worker* worker, dtrun_view key, dtrun_view value, uint64_t* length) {
    return ask(worker, Op::push, key, value, length);
}

int dtrun_pop(dtrun_worker* worker, dtrun_view key, int64_t timeout_ms, dtrun_bytes* value) {
    return ask(worker, Op::pop, key, Timeout{timeout_ms}, Needed{value, "value"});
}

int dtrun_length(dtrun_worker* worker, dtrun_view key, uint64_t* length) {
    return ask(worker, Op::length, key, Needed{length, "length"});
}

int dtrun_watch(dtrun_worker* worker, dtrun_view key, uint64_t* revision, int64_t timeout_ms,
                dtrun_bytes* value) {
    const auto known = [&](StoreRequest& request) { request.number = *revision; };
    return ask(worker, Op::watch, key, known, Timeout{timeout_ms}, Needed{revision, "revision"},
               Needed{value, "value"});
}

int dtrun_count(dtrun_worker* worker, uint64_t* count) {
    return ask(worker, Op::count, Needed{count, "count"});
}

int dtrun_put(dtrun_worker* worker, dtrun_view key, dtrun_view value, int flags, int64_t ttl_ms) {
    if ((flags & ~DTRUN_EPHEMERAL) != 0) return keep_error(DTRUN_INVALID, "put: unknown flags");
    const auto life = [&](StoreRequest& request) {
        if (ttl_ms > 0) request.ttl_ms = static_cast<std::uint64_t>(ttl_ms);
    };
    return ask(worker, Op::put, key, value, Mine{(flags & DTRUN_EPHEMERAL) != 0}, life);
}

int dtrun_lock(dtrun_worker* worker, dtrun_view key, dtrun_view value, int64_t timeout_ms,
               uint64_t* token) {
    return ask(worker, Op::lock, key, value, Mine{}, Timeout{timeout_ms}, Needed{token, "token"});
}

int dtrun_unlock(dtrun_worker* worker, dtrun_view key, uint64_t token, int* was_held) {
    return ask(worker, Op::unlock, key, Number{token}, Mine{}, was_held);
}

int dtrun_claim(dtrun_worker* worker, dtrun_view key, int64_t timeout_ms, dtrun_bytes* value,
                uint64_t* item) {
    return ask(worker, Op::claim, key, Mine{}, Timeout{timeout_ms}, Needed{value, "value"},
               Needed{item, "item"});
}

int dtrun_acknowledge(dtrun_worker* worker, dtrun_view key, uint64_t item, int* done) {
    return ask(worker, Op::acknowledge, key, Number{item}, Mine{}, done);
}

int dtrun_give_back(dtrun_worker* worker, dtrun_view key, uint64_t item, int* done) {
    return ask(worker, Op::give_back, key, Number{item}, Mine{}, done);
}

int dtrun_erase_prefix(dtrun_worker* worker, dtrun_view prefix, uint64_t* count) {
    return ask(worker, Op::erase_prefix, prefix, count);
}

int dtrun_watch_prefix(dtrun_worker* worker, dtrun_view prefix, uint64_t* revision, uint32_t limit,
                       int64_t timeout_ms, dtrun_key_changes* changes) {
    const auto known = [&](StoreRequest& request) {
        request.number = *revision;
        request.limit = limit;
    };
    const int code = ask(worker, Op::watch_prefix, prefix, known, Timeout{timeout_ms},
                         Needed{revision, "revision"}, Needed{changes, "changes"});
    if (code != DTRUN_OK || changes->count > 0 || changes->complete != 0) return code;
    dtrun_free(changes->items);
    *changes = {};
    const StoreRequest asked{.op = Op::watch_prefix, .keys = {text_of(prefix)}};
    return keep_error(DTRUN_TIMED_OUT, named(asked, timeout_ms, {DTRUN_TIMED_OUT, {}}).text);
}

int dtrun_transact(dtrun_worker* worker, const dtrun_condition* conditions, size_t condition_count,
                   const dtrun_action* actions, size_t action_count, int* done, uint64_t* failed) {
    const auto all = [&](StoreRequest& request) {
        for (const dtrun_condition& given : std::span(conditions, condition_count))
            request.conditions.push_back(condition_of(given));
        for (const dtrun_action& given : std::span(actions, action_count))
            request.actions.push_back(action_of(given));
    };
    return ask(worker, Op::transact, all, Needed{done, "done"}, failed);
}

}  // extern "C"
