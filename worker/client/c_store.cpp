#include "rendezvous/wire/msgpack.h"
#include "worker/client/c_worker.h"
#include "worker/client/client.h"

#include <span>

namespace dtrun::embedded {
namespace {

using GiveUp = std::function<bool()>;

/// Asks the store and reads the results, which docs/PROTOCOL.md lists.
/// \param read  void(PackReader&), behind the array's head
template <class Read>
Outcome<void> ask(Client& client, StoreRequest request, std::int64_t timeout_ms, GiveUp give_up,
                  Read read) {
    const auto results = client.request(std::move(request), timeout_ms, std::move(give_up));
    if (!results) return std::unexpected(results.error());
    PackReader in(*results);
    in.array();
    read(in);
    if (!in.ok()) return failure(DTRUN_INTERNAL, "malformed answer of the store");
    return {};
}

void read_nothing(PackReader&) {}

std::vector<std::string_view> texts_of(std::span<const dtrun_view> views) {
    std::vector<std::string_view> texts;
    texts.reserve(views.size());
    for (const dtrun_view view : views) texts.push_back(text_of(view));
    return texts;
}

dtrun_list read_list(PackReader& in) {
    std::vector<std::string_view> items(in.array());
    for (std::string_view& item : items) item = in.bytes();
    return copy_out(items);
}

/// NULL if there is none.
dtrun_bytes read_optional(PackReader& in) {
    return in.nil() ? dtrun_bytes{} : copy_out(in.bytes());
}

template <class T>
void put(T* where, T value) {
    if (where != nullptr) *where = value;
}

Outcome<void> check_pointer(const void* pointer, const char* name) {
    if (pointer == nullptr) return failure(DTRUN_INVALID, "{} is NULL", name);
    return {};
}

/// set, append and push: a key and a value, and a number comes back.
int put_value(dtrun_worker* worker, Op op, dtrun_view key, dtrun_view value, uint64_t* number) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        const auto read = [&](PackReader& in) {
            if (op != Op::set) put(number, in.uint());
        };
        return ask(client, {.op = op, .keys = {text_of(key)}, .values = {text_of(value)}},
                   call_timeout(worker), std::move(give_up), read);
    });
}

/// get and pop: a key, and once there is one, a value comes back.
int take_value(dtrun_worker* worker, Op op, dtrun_view key, int64_t timeout_ms,
               dtrun_bytes* value) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(value, "value"); !valid) return valid;
        const auto read = [&](PackReader& in) { *value = copy_out(in.bytes()); };
        return ask(client, {.op = op, .keys = {text_of(key)}}, timeout_ms, std::move(give_up),
                   read);
    });
}

}  // namespace
}  // namespace dtrun::embedded

using namespace dtrun::embedded;
using dtrun::Op;
using dtrun::PackReader;
using dtrun::StoreRequest;

extern "C" {

int dtrun_set(dtrun_worker* worker, dtrun_view key, dtrun_view value) {
    return put_value(worker, Op::set, key, value, nullptr);
}

int dtrun_append(dtrun_worker* worker, dtrun_view key, dtrun_view value, uint64_t* size) {
    return put_value(worker, Op::append, key, value, size);
}

int dtrun_push(dtrun_worker* worker, dtrun_view key, dtrun_view value, uint64_t* length) {
    return put_value(worker, Op::push, key, value, length);
}

int dtrun_get(dtrun_worker* worker, dtrun_view key, int64_t timeout_ms, dtrun_bytes* value) {
    return take_value(worker, Op::get, key, timeout_ms, value);
}

int dtrun_pop(dtrun_worker* worker, dtrun_view key, int64_t timeout_ms, dtrun_bytes* value) {
    return take_value(worker, Op::pop, key, timeout_ms, value);
}

int dtrun_wait(dtrun_worker* worker, const dtrun_view* keys, size_t count, int64_t timeout_ms) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        return ask(client, {.op = Op::wait, .keys = texts_of({keys, count})}, timeout_ms,
                   std::move(give_up), read_nothing);
    });
}

int dtrun_add(dtrun_worker* worker, dtrun_view key, int64_t delta, int64_t* sum) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        const auto read = [&](PackReader& in) { put(sum, in.integer()); };
        return ask(client, {.op = Op::add, .keys = {text_of(key)}, .delta = delta},
                   call_timeout(worker), std::move(give_up), read);
    });
}

int dtrun_compare_set(dtrun_worker* worker, dtrun_view key, const dtrun_view* expected,
                      dtrun_view desired, int* was_set, dtrun_bytes* now) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        StoreRequest request{
            .op = Op::compare_set, .keys = {text_of(key)}, .values = {text_of(desired)}};
        if (expected != nullptr) request.expected = text_of(*expected);
        const auto read = [&](PackReader& in) {
            put(was_set, static_cast<int>(in.boolean()));
            if (now != nullptr) *now = read_optional(in);
        };
        return ask(client, std::move(request), call_timeout(worker), std::move(give_up), read);
    });
}

int dtrun_check(dtrun_worker* worker, const dtrun_view* keys, size_t count, int* exist) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(exist, "exist"); !valid) return valid;
        const auto read = [&](PackReader& in) { *exist = in.boolean(); };
        return ask(client, {.op = Op::check, .keys = texts_of({keys, count})}, call_timeout(worker),
                   std::move(give_up), read);
    });
}

int dtrun_erase(dtrun_worker* worker, dtrun_view key, int* existed) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        const auto read = [&](PackReader& in) { put(existed, static_cast<int>(in.boolean())); };
        return ask(client, {.op = Op::erase, .keys = {text_of(key)}}, call_timeout(worker),
                   std::move(give_up), read);
    });
}

int dtrun_multi_get(dtrun_worker* worker, const dtrun_view* keys, size_t count, int64_t timeout_ms,
                    dtrun_list* values) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(values, "values"); !valid) return valid;
        const auto read = [&](PackReader& in) { *values = read_list(in); };
        return ask(client, {.op = Op::multi_get, .keys = texts_of({keys, count})}, timeout_ms,
                   std::move(give_up), read);
    });
}

int dtrun_multi_set(dtrun_worker* worker, const dtrun_view* keys, const dtrun_view* values,
                    size_t count) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        return ask(client,
                   {.op = Op::multi_set,
                    .keys = texts_of({keys, count}),
                    .values = texts_of({values, count})},
                   call_timeout(worker), std::move(give_up), read_nothing);
    });
}

int dtrun_list_keys(dtrun_worker* worker, dtrun_view prefix, dtrun_view after, uint32_t limit,
                    dtrun_list* keys, int* more) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(keys, "keys"); !valid) return valid;
        if (limit == 0) return failure(DTRUN_INVALID, "limit is 0");
        const auto read = [&](PackReader& in) {
            *keys = read_list(in);
            put(more, static_cast<int>(in.boolean()));
        };
        return ask(
            client,
            {.op = Op::list, .keys = {text_of(prefix)}, .number = limit, .after = text_of(after)},
            call_timeout(worker), std::move(give_up), read);
    });
}

int dtrun_length(dtrun_worker* worker, dtrun_view key, uint64_t* length) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(length, "length"); !valid) return valid;
        const auto read = [&](PackReader& in) { *length = in.uint(); };
        return ask(client, {.op = Op::length, .keys = {text_of(key)}}, call_timeout(worker),
                   std::move(give_up), read);
    });
}

int dtrun_watch(dtrun_worker* worker, dtrun_view key, uint64_t* revision, int64_t timeout_ms,
                dtrun_bytes* value) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(revision, "revision"); !valid) return valid;
        if (auto valid = check_pointer(value, "value"); !valid) return valid;
        const auto read = [&](PackReader& in) {
            *revision = in.uint();
            *value = read_optional(in);
        };
        return ask(client, {.op = Op::watch, .keys = {text_of(key)}, .number = *revision},
                   timeout_ms, std::move(give_up), read);
    });
}

int dtrun_count(dtrun_worker* worker, uint64_t* count) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(count, "count"); !valid) return valid;
        const auto read = [&](PackReader& in) { *count = in.uint(); };
        return ask(client, {.op = Op::count}, call_timeout(worker), std::move(give_up), read);
    });
}

}  // extern "C"
