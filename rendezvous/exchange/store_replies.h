#pragma once

#include "rendezvous/exchange/store.h"
#include "rendezvous/wire/msgpack.h"

// How a store's operations answer, for the files that have them.

namespace dtrun {

inline constexpr std::size_t kEntryBytes = 160;  ///< approximate overhead of a key
inline constexpr std::size_t kItemBytes = 48;    ///< approximate overhead of a queue's item

inline StoreReply reply(Status status) {
    return {status, Bytes(1, '\x90')};  // an empty array
}

template <class Write>
StoreReply ok(std::uint32_t items, Write write) {
    StoreReply made{Status::ok, {}};
    PackWriter out(made.results);
    out.array(items);
    write(out);
    return made;
}

inline StoreReply ok_number(std::uint64_t number) {
    return ok(1, [number](PackWriter& out) { out.uint(number); });
}

inline StoreReply ok_bool(bool value) {
    return ok(1, [value](PackWriter& out) { out.boolean(value); });
}

inline StoreReply refused(std::string_view why) {
    StoreReply made = ok(1, [why](PackWriter& out) { out.str(why); });
    made.status = Status::refused;
    return made;
}

/// Refused for want of room, which others may make.
inline StoreReply full(std::string_view why = "the store is full") {
    StoreReply made = ok(2, [why](PackWriter& out) { out.str(why), out.boolean(true); });
    made.status = Status::refused;
    return made;
}

}  // namespace dtrun
