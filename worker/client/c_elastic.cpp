#include "rendezvous/wire/change.h"
#include "worker/client/c_worker.h"
#include "worker/client/request_texts.h"

#include <unistd.h>
#include <string>

namespace dtrun::embedded {
namespace {

dtrun_change change_of(const Change& change, std::uint64_t generation) {
    dtrun_change made{};
    made.generation = generation;
    made.next = change.next;
    made.stop_step = change.stop_step;
    made.deadline_ms = static_cast<std::int64_t>(change.deadline_ms);
    made.reason = static_cast<int>(change.reason);
    return made;
}

/// The client as it is: no look at whether this process was forked, which costs a system call.
const Client& client_as_it_is(const dtrun_worker* worker) {
    return *origin_of(worker).client.load(std::memory_order_acquire);
}

Outcome<void> section(Client& client, Section::Kind kind, std::string_view name,
                      std::uint64_t limit_ms, const WaitContext& context) {
    if (kind != Section::Kind::beat && (name.empty() || name.size() > Section::kNameBytesMax))
        return failure(DTRUN_INVALID, "a section's name of {} bytes, not 1 to {}", name.size(),
                       Section::kNameBytesMax);
    return client.section({kind, std::string(name), limit_ms}, context);
}

Outcome<void> stall(Client& client, dtrun::Stall stall, const WaitContext& context) {
    if (stall.what.empty() || stall.what.size() > dtrun::Stall::kWhatBytesMax)
        return failure(DTRUN_INVALID, "what a rank waits for, in {} bytes, not 1 to {}",
                       stall.what.size(), dtrun::Stall::kWhatBytesMax);
    return client.stall(stall, context);
}

}  // namespace
}  // namespace dtrun::embedded

using namespace dtrun::embedded;

extern "C" {

int dtrun_rejoin(dtrun_worker* worker, int64_t timeout_ms) {
    return call(worker, [&](Client& client, std::function<bool()> give_up) -> Outcome<void> {
        const auto rejoined = client.rejoin({moment_after(timeout_ms), std::move(give_up)});
        if (!rejoined) return std::unexpected(named("rejoin", timeout_ms, rejoined.error()));
        return {};
    });
}

int dtrun_can_rejoin(const dtrun_worker* worker) {
    if (worker == nullptr) return 0;
    const Client& client = client_as_it_is(worker);
    return client.can_rejoin() && client.pid() == ::getpid() ? 1 : 0;
}

int dtrun_change_pending(const dtrun_worker* worker, dtrun_change* change) {
    if (worker == nullptr) return 0;
    const Client& client = client_as_it_is(worker);
    const std::uint64_t generation = client.generation();
    if (!client.changes().is_pending(generation)) return 0;
    if (change != nullptr) *change = change_of(client.changes().read(), generation);
    return 1;
}

int dtrun_wait_for_change(dtrun_worker* worker, int64_t timeout_ms, dtrun_change* change) {
    return call(worker, [&](Client& client, std::function<bool()> give_up) -> Outcome<void> {
        const auto waited = client.wait_for_change({moment_after(timeout_ms), std::move(give_up)});
        if (!waited) return std::unexpected(named("wait_for_change", timeout_ms, waited.error()));
        if (change != nullptr) *change = change_of(client.changes().read(), client.generation());
        return {};
    });
}

int dtrun_on_loss(dtrun_worker* worker, void (*lost)(void*), void* argument, uint64_t* id) {
    return call(worker, [&](Client& client, const std::function<bool()>&) -> Outcome<void> {
        if (lost == nullptr || id == nullptr)
            return failure(DTRUN_INVALID, "on_loss: lost or id is NULL");
        const auto added = client.on_loss([lost, argument] { lost(argument); });
        if (!added) return std::unexpected(named("on_loss", 0, added.error()));
        *id = *added;
        return {};
    });
}

int dtrun_on_loss_end(dtrun_worker* worker, uint64_t id) {
    return call(worker, [&](Client& client, const std::function<bool()>&) -> Outcome<void> {
        client.on_loss_end(id);
        return {};
    });
}

uint64_t dtrun_token(const dtrun_worker* worker) {
    if (worker == nullptr) {
        keep_error(DTRUN_INVALID, "worker is NULL");
        return 0;
    }
    return client_as_it_is(worker).generation();
}

int dtrun_section(dtrun_worker* worker, dtrun_view name, int64_t limit_ms) {
    return tell(worker, [&](Client& client, const WaitContext& context) -> Outcome<void> {
        if (limit_ms <= 0) return failure(DTRUN_INVALID, "a section's limit of {} ms", limit_ms);
        return section(client, dtrun::Section::Kind::begin, text_of(name),
                       static_cast<std::uint64_t>(limit_ms), context);
    });
}

int dtrun_section_end(dtrun_worker* worker, dtrun_view name) {
    return tell(worker, [&](Client& client, const WaitContext& context) {
        return section(client, dtrun::Section::Kind::end, text_of(name), 0, context);
    });
}

int dtrun_beat(dtrun_worker* worker) {
    return tell(worker, [&](Client& client, const WaitContext& context) {
        return section(client, dtrun::Section::Kind::beat, {}, 0, context);
    });
}

int dtrun_stall(dtrun_worker* worker, dtrun_view what, int64_t waited_ms) {
    return tell(worker, [&](Client& client, const WaitContext& context) -> Outcome<void> {
        if (waited_ms < 0) return failure(DTRUN_INVALID, "it has waited for {} ms", waited_ms);
        return stall(client, {std::string(text_of(what)), static_cast<std::uint64_t>(waited_ms)},
                     context);
    });
}

int dtrun_stall_end(dtrun_worker* worker, dtrun_view what) {
    return tell(worker, [&](Client& client, const WaitContext& context) {
        return stall(client, {std::string(text_of(what)), 0, true}, context);
    });
}

}  // extern "C"
