// Whatever connects to torch's store: it may be refused, but nothing else may come of it, and how the
// bytes are cut changes nothing in the store. (A WAIT is answered, or ended by the CANCEL_WAIT that has come
// with it.)

#include "worker/stores/local_store.h"
#include "worker/stores/tcp_store_session.h"

#include <algorithm>
#include <cstdlib>

namespace dtrun {

using namespace stores;
namespace {

struct Outcome {
    bool failed = false;
    std::size_t keys = 0;

    bool operator==(const Outcome&) const = default;
};

/// \param step  bytes that come at a time
Outcome talk(std::string_view bytes, std::size_t step) {
    asio::io_context context;
    LocalStore store(context.get_executor());
    Outcome outcome;
    {
        TcpStoreSession session(store, {[] {}, [] { return true; }, {}});
        const auto collect = [&] {
            while (session.has_output()) session.sent(session.output().size());
        };
        while (!bytes.empty() && session.wants_input()) {
            const auto room = session.room();
            if (room.empty()) std::abort();
            const std::size_t taken = std::min({bytes.size(), room.size(), step});
            std::ranges::copy(bytes.substr(0, taken), room.begin());
            bytes.remove_prefix(taken);
            session.received(taken);
            context.restart();
            context.poll();
            collect();
        }
        outcome.failed = session.failure().has_value();
        if (const auto waiting = session.waiting())
            if (waiting->key.size() > kKeyBytesMax) std::abort();
    }
    if (store.store().waiting() > 0) std::abort();
    outcome.keys = store.store().size();
    return outcome;
}

}  // namespace
}  // namespace dtrun

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto whole = dtrun::talk(bytes, bytes.size());
    // In legacy's dialects the end of what has come decides between two operations.
    const bool modern = size > 0 && data[0] == 0 && size > 1 && data[1] == 0xce;
    if (modern && dtrun::talk(bytes, 7) != whole) std::abort();
    dtrun::talk(bytes, 1);
    return 0;
}
