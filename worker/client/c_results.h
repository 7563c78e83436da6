#pragma once

#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/store_request.h"
#include "worker/client/c_worker.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What functions that wait and requests that do not share of the store's arguments and results.

namespace dtrun::embedded {

inline Condition condition_of(const dtrun_condition& given) {
    return {text_of(given.key), Condition::Kind(given.kind), text_of(given.value), given.revision};
}
inline Action action_of(const dtrun_action& given) {
    return {Action::Kind(given.kind), text_of(given.key), text_of(given.value)};
}

/// Keys with the handle's prefix before them.
class Prefixed {
public:
    Prefixed(const std::string& prefix, StoreRequest& request) : prefix_(prefix) {
        if (prefix.empty()) return;
        for (std::string_view& key : request.keys) add_to(key);
        for (Condition& condition : request.conditions) add_to(condition.key);
        for (Action& action : request.actions) add_to(action.key);
        if (!request.after.empty()) add_to(request.after);
    }

private:
    void add_to(std::string_view& key) { key = texts_.emplace_back(prefix_ + std::string(key)); }

    const std::string& prefix_;
    std::deque<std::string> texts_;
};

/// The results of an answer, and how many bytes of keys are the handle's prefix.
struct Results {
    PackReader in;
    std::size_t prefix;

    std::string_view key() {
        const std::string_view whole = in.bytes();
        return whole.substr(std::min(prefix, whole.size()));
    }
};

/// Where keys go.
struct Keys {
    dtrun_list* place;
    const char* name;
};

// Each takes the next result to its place; parts that are no places take nothing.
inline void take(Results& from, std::uint64_t* place) {
    const std::uint64_t number = from.in.uint();
    if (place != nullptr) *place = number;
}
inline void take(Results& from, std::int64_t* place) {
    const std::int64_t number = from.in.integer();
    if (place != nullptr) *place = number;
}
inline void take(Results& from, int* place) {
    const bool yes = from.in.boolean();
    if (place != nullptr) *place = static_cast<int>(yes);
}
inline void take(Results& from, dtrun_bytes* place) {
    std::optional<std::string_view> bytes;
    if (!from.in.nil()) bytes = from.in.bytes();
    if (place != nullptr) *place = bytes ? copy_out(*bytes) : dtrun_bytes{};
}
inline void take(Results& from, dtrun_list* place) {
    std::vector<std::string_view> items(from.in.array());
    for (std::string_view& item : items) item = from.in.bytes();
    if (place != nullptr) *place = copy_out(items);
}
inline void take(Results& from, Keys part) {
    std::vector<std::string_view> keys(from.in.array());
    for (std::string_view& key : keys) key = from.key();
    *part.place = copy_out(keys);
}
inline void take(Results& from, dtrun_key_changes* place) {
    place->complete = static_cast<int>(from.in.boolean());
    std::vector<dtrun_key_change> changes(from.in.array());
    std::vector<std::string_view> texts;  // key and value of each
    for (dtrun_key_change& change : changes) {
        from.in.array();
        change.revision = from.in.uint();
        texts.push_back(from.key());
        texts.push_back(from.in.nil() ? std::string_view() : from.in.bytes());
        change.kind = static_cast<int>(from.in.uint());
    }
    copy_out(std::move(changes), texts, *place);
}

}  // namespace dtrun::embedded
