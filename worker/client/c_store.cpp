#include "worker/client/ask.h"
#include "worker/client/c_worker.h"

#include <span>

namespace dtrun::embedded {
namespace {

using GiveUp = std::function<bool()>;

constexpr std::int64_t kNoTimeout = -1;

void pack_all(PackWriter& out, std::span<const dtrun_view> views) {
    out.array(static_cast<std::uint32_t>(views.size()));
    for (const dtrun_view view : views) out.bin(text_of(view));
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
        const auto pack = [&](PackWriter& out) { out.bin(text_of(key)), out.bin(text_of(value)); };
        const auto read = [&](PackReader& in) {
            if (op != Op::set) put(number, in.uint());
        };
        return ask(client, op, 2, kNoTimeout, std::move(give_up), pack, read);
    });
}

/// get and pop: a key, and once there is one, a value comes back.
int take_value(dtrun_worker* worker, Op op, dtrun_view key, int64_t timeout_ms,
               dtrun_bytes* value) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(value, "value"); !valid) return valid;
        const auto pack = [&](PackWriter& out) {
            out.bin(text_of(key)), out.uint(wire_timeout(timeout_ms));
        };
        const auto read = [&](PackReader& in) { *value = copy_out(in.bytes()); };
        return ask(client, op, 2, timeout_ms, std::move(give_up), pack, read);
    });
}

}  // namespace
}  // namespace dtrun::embedded

using namespace dtrun::embedded;
using dtrun::Op;
using dtrun::PackReader;
using dtrun::PackWriter;

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
        const auto pack = [&](PackWriter& out) {
            pack_all(out, {keys, count}), out.uint(wire_timeout(timeout_ms));
        };
        return ask(client, Op::wait, 2, timeout_ms, std::move(give_up), pack, read_nothing);
    });
}

int dtrun_add(dtrun_worker* worker, dtrun_view key, int64_t delta, int64_t* sum) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        const auto pack = [&](PackWriter& out) { out.bin(text_of(key)), out.integer(delta); };
        const auto read = [&](PackReader& in) { put(sum, in.integer()); };
        return ask(client, Op::add, 2, kNoTimeout, std::move(give_up), pack, read);
    });
}

int dtrun_compare_set(dtrun_worker* worker, dtrun_view key, const dtrun_view* expected,
                      dtrun_view desired, int* was_set, dtrun_bytes* now) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        const auto pack = [&](PackWriter& out) {
            out.bin(text_of(key));
            if (expected != nullptr)
                out.bin(text_of(*expected));
            else
                out.nil();
            out.bin(text_of(desired));
        };
        const auto read = [&](PackReader& in) {
            put(was_set, static_cast<int>(in.boolean()));
            if (now != nullptr) *now = read_optional(in);
        };
        return ask(client, Op::compare_set, 3, kNoTimeout, std::move(give_up), pack, read);
    });
}

int dtrun_check(dtrun_worker* worker, const dtrun_view* keys, size_t count, int* exist) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(exist, "exist"); !valid) return valid;
        const auto pack = [&](PackWriter& out) { pack_all(out, {keys, count}); };
        const auto read = [&](PackReader& in) { *exist = in.boolean(); };
        return ask(client, Op::check, 1, kNoTimeout, std::move(give_up), pack, read);
    });
}

int dtrun_erase(dtrun_worker* worker, dtrun_view key, int* existed) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        const auto pack = [&](PackWriter& out) { out.bin(text_of(key)); };
        const auto read = [&](PackReader& in) { put(existed, static_cast<int>(in.boolean())); };
        return ask(client, Op::erase, 1, kNoTimeout, std::move(give_up), pack, read);
    });
}

int dtrun_multi_get(dtrun_worker* worker, const dtrun_view* keys, size_t count, int64_t timeout_ms,
                    dtrun_list* values) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(values, "values"); !valid) return valid;
        const auto pack = [&](PackWriter& out) {
            pack_all(out, {keys, count}), out.uint(wire_timeout(timeout_ms));
        };
        const auto read = [&](PackReader& in) { *values = read_list(in); };
        return ask(client, Op::multi_get, 2, timeout_ms, std::move(give_up), pack, read);
    });
}

int dtrun_multi_set(dtrun_worker* worker, const dtrun_view* keys, const dtrun_view* values,
                    size_t count) {
    return call(worker, [&](Client& client, GiveUp give_up) {
        const auto pack = [&](PackWriter& out) {
            out.array(static_cast<std::uint32_t>(2 * count));
            for (std::size_t i = 0; i < count; ++i)
                out.bin(text_of(keys[i])), out.bin(text_of(values[i]));
        };
        return ask(client, Op::multi_set, 1, kNoTimeout, std::move(give_up), pack, read_nothing);
    });
}

int dtrun_list_keys(dtrun_worker* worker, dtrun_view prefix, dtrun_view after, uint32_t limit,
                    dtrun_list* keys, int* more) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(keys, "keys"); !valid) return valid;
        if (limit == 0) return failure(DTRUN_INVALID, "limit is 0");
        const auto pack = [&](PackWriter& out) {
            out.bin(text_of(prefix)), out.bin(text_of(after)), out.uint(limit);
        };
        const auto read = [&](PackReader& in) {
            *keys = read_list(in);
            put(more, static_cast<int>(in.boolean()));
        };
        return ask(client, Op::list, 3, kNoTimeout, std::move(give_up), pack, read);
    });
}

int dtrun_length(dtrun_worker* worker, dtrun_view key, uint64_t* length) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(length, "length"); !valid) return valid;
        const auto pack = [&](PackWriter& out) { out.bin(text_of(key)); };
        const auto read = [&](PackReader& in) { *length = in.uint(); };
        return ask(client, Op::length, 1, kNoTimeout, std::move(give_up), pack, read);
    });
}

int dtrun_watch(dtrun_worker* worker, dtrun_view key, uint64_t* revision, int64_t timeout_ms,
                dtrun_bytes* value) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(revision, "revision"); !valid) return valid;
        if (auto valid = check_pointer(value, "value"); !valid) return valid;
        const auto pack = [&](PackWriter& out) {
            out.bin(text_of(key)), out.uint(*revision), out.uint(wire_timeout(timeout_ms));
        };
        const auto read = [&](PackReader& in) {
            *revision = in.uint();
            *value = read_optional(in);
        };
        return ask(client, Op::watch, 3, timeout_ms, std::move(give_up), pack, read);
    });
}

int dtrun_count(dtrun_worker* worker, uint64_t* count) {
    return call(worker, [&](Client& client, GiveUp give_up) -> Outcome<void> {
        if (auto valid = check_pointer(count, "count"); !valid) return valid;
        const auto read = [&](PackReader& in) { *count = in.uint(); };
        return ask(
            client, Op::count, 0, kNoTimeout, std::move(give_up), [](PackWriter&) {}, read);
    });
}

}  // extern "C"
