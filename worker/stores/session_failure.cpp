#include "worker/stores/session_failure.h"

#include "rendezvous/wire/msgpack.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::stores {

void SessionFailure::set(Error why) {
    if (!error_) error_ = std::move(why);
}

bool SessionFailure::is_over_after(const StoreReply& reply) {
    if (reply.status == Status::stale) {
        set({Errc::closed, "the generation is over"});
    } else if (reply.status == Status::refused) {
        PackReader in(reply.results);
        in.array();
        set({Errc::invalid_input, fmt::format("refused: {}", in.bytes())});
    }
    return error_.has_value();
}

}  // namespace dtrun::stores
