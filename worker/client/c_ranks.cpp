#include "rendezvous/wire/exchange_messages.h"
#include "worker/client/c_worker.h"
#include "worker/client/request_texts.h"

namespace dtrun::embedded {
namespace {

/// What every rank brought, at its rank.
Outcome<std::vector<FenceEntry>> fence_with_all(Client& client, std::string_view name,
                                                std::optional<std::string_view> bytes,
                                                std::int64_t timeout_ms,
                                                const std::function<bool()>& give_up) {
    if (client.role() == Client::Role::helper)
        return failure(DTRUN_FORKED, "fence '{}': only the rank's own process can take part", name);
    if (name.empty() || name.size() > Fence::kNameBytesMax)
        return failure(DTRUN_INVALID, "a fence's name of {} bytes, not 1 to {}", name.size(),
                       Fence::kNameBytesMax);
    if (bytes && bytes->size() > Fence::kBytesMax)
        return failure(DTRUN_INVALID, "{} bytes for a fence, more than {}", bytes->size(),
                       Fence::kBytesMax);
    if (client.is_served()) return client.fence(name, bytes, timeout_ms, give_up);
    if (client.rank_info().world_size == 1)
        return std::vector<FenceEntry>{{Rank{0}, Bytes(bytes.value_or(""))}};
    const Failure why = client.unserved();
    return failure(why.code, "fence '{}': {}", name, why.text);
}

Outcome<dtrun_list> list_by_rank(const std::vector<FenceEntry>& entries, std::uint32_t ranks) {
    std::vector<std::string_view> items(ranks);
    for (const FenceEntry& entry : entries) {
        if (!is_below(entry.rank, ranks))
            return failure(DTRUN_INTERNAL, "bytes of rank {} of {}", entry.rank, ranks);
        items[std::to_underlying(entry.rank)] = entry.bytes;
    }
    return copy_out(items);
}

}  // namespace
}  // namespace dtrun::embedded

using namespace dtrun::embedded;

extern "C" {

int dtrun_barrier(dtrun_worker* worker, dtrun_view name, int64_t timeout_ms) {
    return call(worker, [&](Client& client, std::function<bool()> give_up) -> Outcome<void> {
        const auto met = fence_with_all(client, text_of(name), {}, timeout_ms, give_up);
        if (!met) return std::unexpected(met.error());
        return {};
    });
}

int dtrun_fence(dtrun_worker* worker, dtrun_view name, dtrun_view bytes, int64_t timeout_ms,
                dtrun_list* all) {
    return call(worker, [&](Client& client, std::function<bool()> give_up) -> Outcome<void> {
        if (all == nullptr) return failure(DTRUN_INVALID, "fence: all is NULL");
        const std::uint32_t ranks = client.rank_info().world_size;
        const auto met = fence_with_all(client, text_of(name), text_of(bytes), timeout_ms, give_up);
        if (!met) return std::unexpected(met.error());
        const auto list = list_by_rank(*met, ranks);
        if (!list) return std::unexpected(list.error());
        *all = *list;
        return {};
    });
}

int dtrun_progress(dtrun_worker* worker, uint64_t step) {
    return tell(worker, [&](Client& client, const WaitContext& context) {
        return client.progress(step, context);
    });
}

int dtrun_next_event(dtrun_worker* worker, int64_t timeout_ms, dtrun_event* event) {
    return call(worker, [&](Client& client, std::function<bool()> give_up) -> Outcome<void> {
        if (event == nullptr) return failure(DTRUN_INVALID, "next_event: event is NULL");
        const auto next = client.next_event({moment_after(timeout_ms), std::move(give_up)});
        if (!next) return std::unexpected(named("next_event", timeout_ms, next.error()));
        *event = {static_cast<int>(next->kind), next->generation, next->grace_ms,
                  static_cast<char*>(copy_out(next->why).data)};
        return {};
    });
}

int dtrun_event_fd(dtrun_worker* worker, int* fd) {
    return call(worker, [&](Client& client, const std::function<bool()>&) -> Outcome<void> {
        if (fd == nullptr) return failure(DTRUN_INVALID, "event_fd: fd is NULL");
        const auto found = client.event_fd();
        if (!found) return std::unexpected(named("event_fd", 0, found.error()));
        *fd = *found;
        return {};
    });
}

}  // extern "C"
