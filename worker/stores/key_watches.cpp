#include "worker/stores/key_watches.h"

#include "rendezvous/wire/msgpack.h"
#include "worker/stores/torch_operation.h"

#include <utility>

namespace dtrun::stores {
namespace {

constexpr std::size_t kWatchesMax = 1'024;

constexpr char kKeyUpdated = 0, kKeyCreated = 1, kKeyDeleted = 2;
constexpr char kCallbackRegistered = 3;

}  // namespace

KeyWatches::KeyWatches(JobStore& store, SessionFailure& failure, TcpStoreOutput& out,
                       std::function<void()> answered)
    : store_(store), failure_(failure), out_(out), answered_(std::move(answered)) {}

Result<void> KeyWatches::add(std::string_view key) {
    if (watches_.size() == kWatchesMax)
        return fail(Errc::invalid_input, "more than {} watched keys", kWatchesMax);
    to_ask_.push_back(&watches_.emplace_back(Watch{std::string(key)}));
    return {};
}

/// The first question about a key is answered at once, as no key has the revision that it names.
bool KeyWatches::ask_next() {
    if (to_ask_.empty()) return false;
    Watch& watch = *to_ask_.back();
    to_ask_.pop_back();
    StoreQuery query;
    StoreRequest& request = query.begin(Op::watch, StoreQuery::kKeys, watch.key);
    request.number = watch.revision.value_or(~std::uint64_t{0});
    request.timeout_ms = kForeverMs;
    watch.query =
        store_.ask(request, [this, &watch](const StoreReply& reply) { changed(watch, reply); });
    return true;
}

void KeyWatches::changed(Watch& watch, const StoreReply& reply) {
    watch.query.answered();
    if (!failure_.is_over_after(reply)) {
        PackReader in(reply.results);
        in.array();
        const std::uint64_t revision = in.uint();
        std::optional<std::string> now;
        if (!in.nil()) now = in.bytes();
        tell(watch, now);
        watch.revision = revision;
        watch.value = std::move(now);
        to_ask_.push_back(&watch);
    }
    answered_();
}

void KeyWatches::tell(const Watch& watch, const std::optional<std::string>& now) {
    if (!watch.revision) {
        out_.put(kCallbackRegistered);
    } else if (now || watch.value) {
        out_.put(!watch.value ? kKeyCreated : now ? kKeyUpdated : kKeyDeleted);
        out_.put_bytes(watch.key);
        out_.put_bytes(watch.value.value_or(""));
        out_.put_bytes(now.value_or(""));
    }
}

}  // namespace dtrun::stores
