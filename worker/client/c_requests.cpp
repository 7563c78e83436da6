#include "rendezvous/wire/msgpack.h"
#include "worker/client/c_worker.h"
#include "worker/client/client.h"
#include "worker/client/request_texts.h"

#include "base/sized_struct.h"

#include <algorithm>
#include <cstring>
#include <span>

// The functions of <dtrun.h> for requests that nobody waits for.

namespace dtrun::embedded {
namespace {

/// Whether programs may ask for it.
bool is_known(int operation) {
    switch (operation) {
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    case number:                                                   \
        return number <= DTRUN_OP_COUNT && std::string_view(function) != "store";
#include "rendezvous/wire/operations.def"
        default:
            return false;
    }
}

Outcome<StoreRequest> request_of(const dtrun_submission& given) {
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
    if (const auto whole = request.check(); !whole)
        return failure(DTRUN_INVALID, "submit: {}", whole.error().message);
    return request;
}

/// Takes the results to their places, in the order of docs/PROTOCOL.md.
void read_results(Op op, PackReader& in, dtrun_completion& to) {
    const auto value = [&] {
        if (!in.nil()) to.value = copy_out(in.bytes());
    };
    const auto items = [&] {
        std::vector<std::string_view> all(in.array());
        for (std::string_view& item : all) item = in.bytes();
        to.items = copy_out(all);
    };
    in.array();
    switch (op) {
        case Op::get:
        case Op::pop:
            return value();
        case Op::add:
        case Op::append:
        case Op::push:
        case Op::length:
        case Op::count:
            to.number = in.integer();
            return;
        case Op::check:
        case Op::erase:
            to.yes = in.boolean() ? 1 : 0;
            return;
        case Op::compare_set:
            to.yes = in.boolean() ? 1 : 0;
            return value();
        case Op::multi_get:
            return items();
        case Op::list:
            items();
            to.yes = in.boolean() ? 1 : 0;
            return;
        case Op::watch:
            to.number = in.integer();
            return value();
        default:
            return;  // they have none, or cannot be submitted
    }
}

Outcome<void> deliver(const Requests::Completion& ended, dtrun_completion& place) {
    dtrun_completion own{};
    own.size = place.size;
    own.id = ended.number;
    own.argument = ended.submission.argument;
    own.operation = static_cast<int>(ended.submission.op);
    if (ended.results) {
        PackReader in(*ended.results);
        read_results(ended.submission.op, in, own);
        if (!in.ok()) own.code = keep_error(DTRUN_INTERNAL, "malformed answer of the store");
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
        if (!worker->prefix.empty())
            return failure(DTRUN_INVALID, "submit: not through a prefix, but with whole keys");
        auto asked = request_of(*given);
        if (!asked) return std::unexpected(asked.error());
        const bool has_own_timeout = may_wait(asked->op) || given->timeout_ms > 0;
        const std::int64_t timeout_ms = has_own_timeout ? given->timeout_ms : call_timeout(worker);
        const auto number = client.submit(std::move(*asked), timeout_ms, given->argument,
                                          given->more != 0, std::move(give_up));
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
        const auto ended = client.complete({moment_after(timeout_ms), std::move(give_up)});
        if (!ended) return std::unexpected(named("complete", timeout_ms, ended.error()));
        return deliver(*ended, *completion);
    });
}

int dtrun_cancel(dtrun_worker* worker, uint64_t id) {
    return call(worker, [&](Client& client, const std::function<bool()>&) -> Outcome<void> {
        if (client.cancel(id)) return {};
        return failure(DTRUN_NOT_FOUND, "cancel: no request of that number is under way");
    });
}

}  // extern "C"
