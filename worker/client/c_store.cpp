#include "rendezvous/wire/msgpack.h"
#include "worker/client/c_worker.h"
#include "worker/client/client.h"

#include <optional>
#include <span>
#include <type_traits>

// The functions of <dtrun.h> for the operations of the store. Each names the parts of its call: what is asked,
// and then where the results go, in the order of docs/PROTOCOL.md.

namespace dtrun::embedded {
namespace {

struct Call {
    StoreRequest request;
    std::int64_t timeout_ms;
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
template <class Part>
void ask_for(Call& call, Part part) {
    if constexpr (std::is_invocable_v<Part, StoreRequest&>) part(call.request);
}

// Each takes the next result to its place; parts that are no places take nothing.
void take(PackReader& in, std::uint64_t* place) {
    const std::uint64_t number = in.uint();
    if (place != nullptr) *place = number;
}
void take(PackReader& in, std::int64_t* place) {
    const std::int64_t number = in.integer();
    if (place != nullptr) *place = number;
}
void take(PackReader& in, int* place) {
    const bool yes = in.boolean();
    if (place != nullptr) *place = static_cast<int>(yes);
}
void take(PackReader& in, dtrun_bytes* place) {
    std::optional<std::string_view> bytes;
    if (!in.nil()) bytes = in.bytes();
    if (place != nullptr) *place = bytes ? copy_out(*bytes) : dtrun_bytes{};
}
void take(PackReader& in, dtrun_list* place) {
    std::vector<std::string_view> items(in.array());
    for (std::string_view& item : items) item = in.bytes();
    if (place != nullptr) *place = copy_out(items);
}
template <class T>
void take(PackReader& in, Needed<T> part) {
    take(in, part.place);
}
template <class Part>
void take(PackReader&, Part) {}

template <class T>
void check(Outcome<void>& valid, Needed<T> part) {
    if (valid && part.place == nullptr) valid = failure(DTRUN_INVALID, "{} is NULL", part.name);
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
        if (!valid) return valid;
        Call asked{{.op = op}, call_timeout(worker)};
        (ask_for(asked, parts), ...);
        const auto results =
            client.request(std::move(asked.request), asked.timeout_ms, std::move(give_up));
        if (!results) return std::unexpected(results.error());
        PackReader in(*results);
        in.array();
        (take(in, parts), ...);
        if (!in.ok()) return failure(DTRUN_INTERNAL, "malformed answer of the store");
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

int dtrun_check(dtrun_worker* worker, const dtrun_view* keys, size_t count, int* exist) {
    return ask(worker, Op::check, std::span(keys, count), Needed{exist, "exist"});
}

int dtrun_erase(dtrun_worker* worker, dtrun_view key, int* existed) {
    return ask(worker, Op::erase, key, existed);
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
    return ask(worker, Op::list, prefix, behind, Needed{keys, "keys"}, Limit{limit}, more);
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

}  // extern "C"
