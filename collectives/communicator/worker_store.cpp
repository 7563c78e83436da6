#include "collectives/communicator/worker_store.h"

#include "worker/include/dtrun.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun::collectives {
namespace {

dtrun_view view(const std::string& text) {
    return {text.data(), text.size()};
}

std::string take(dtrun_bytes bytes) {
    std::string text(static_cast<const char*>(bytes.data), bytes.size);
    dtrun_free(bytes.data);
    return text;
}

Errc errc_of(int code) {
    switch (code) {
        case DTRUN_NOT_FOUND:
        case DTRUN_NO_LAUNCHER:
            return Errc::not_found;
        case DTRUN_TIMED_OUT:
            return Errc::timed_out;
        case DTRUN_STALE:
        case DTRUN_CLOSED:
            return Errc::closed;
        case DTRUN_CANCELLED:
            return Errc::cancelled;
        case DTRUN_REFUSED:
            return Errc::denied;
        case DTRUN_INVALID:
        case DTRUN_FORKED:
            return Errc::invalid_input;
        default:
            return Errc::internal;
    }
}

std::unexpected<Error> membership_has_changed() {
    return fail(Errc::closed, "the membership has changed: a rank is lost, or others have come");
}

/// The client's text would name a key of the communicator's own.
std::unexpected<Error> store_error(int code) {
    return code == DTRUN_STALE ? membership_has_changed() : worker_error(code);
}

}  // namespace

std::unexpected<Error> worker_error(int code) {
    return std::unexpected(Error{errc_of(code), dtrun_error_text()});
}

Result<SharedWorker> SharedWorker::of(dtrun_worker* worker) {
    dtrun_worker* shared = nullptr;
    if (const int code = dtrun_share(worker, &shared); code != DTRUN_OK) return worker_error(code);
    return SharedWorker(shared);
}

SharedWorker::SharedWorker(SharedWorker&& other) noexcept
    : worker_(std::exchange(other.worker_, nullptr)) {}

SharedWorker& SharedWorker::operator=(SharedWorker&& other) noexcept {
    std::swap(worker_, other.worker_);
    return *this;
}

SharedWorker::~SharedWorker() {
    dtrun_finalize(worker_, nullptr);
}

LossHook::LossHook(dtrun_worker* worker, std::function<void()> lost)
    : worker_(worker), lost_(std::move(lost)) {
    constexpr auto kCall = [](void* hook) { static_cast<LossHook*>(hook)->lost_(); };
    if (dtrun_on_loss(worker_, kCall, this, &id_) != DTRUN_OK) id_ = 0;
}

LossHook::~LossHook() {
    if (id_ != 0) dtrun_on_loss_end(worker_, id_);
}

WorkerStore::WorkerStore(dtrun_worker* worker)
    : worker_(worker), generation_(dtrun_generation(worker)) {}

Result<void> WorkerStore::still_there() const {
    if (dtrun_generation(worker_) == generation_) return {};
    return membership_has_changed();
}

Result<void> WorkerStore::set(std::span<const Pair> pairs) {
    if (auto there = still_there(); !there) return there;
    std::vector<dtrun_view> keys, values;
    for (const auto& [key, value] : pairs) {
        keys.push_back(view(key));
        values.push_back(view(value));
    }
    const int code = dtrun_multi_set(worker_, keys.data(), values.data(), keys.size());
    if (code != DTRUN_OK) return store_error(code);
    if (joined_) return {};
    std::vector<std::string> own;
    for (const auto& [key, value] : pairs) own.push_back(key);
    this->own(std::move(own));
    return {};
}

void WorkerStore::own(std::vector<std::string> keys) {
    const std::lock_guard lock(mutex_);
    std::ranges::move(keys, std::back_inserter(own_keys_));
}

void WorkerStore::erase_own() {
    const std::lock_guard lock(mutex_);
    for (const std::string& key : std::exchange(own_keys_, {}))
        if (!still_there() || dtrun_erase(worker_, view(key), nullptr) != DTRUN_OK) return;
}

Result<std::vector<std::string>> WorkerStore::get(std::span<const std::string> keys,
                                                  std::chrono::milliseconds timeout) {
    if (auto there = still_there(); !there) return std::unexpected(there.error());
    std::vector<dtrun_view> views;
    for (const std::string& key : keys) views.push_back(view(key));
    dtrun_list list{};
    constexpr std::chrono::milliseconds kLook{1'000};
    int code = DTRUN_TIMED_OUT;
    for (bool last = false; code == DTRUN_TIMED_OUT && !last;) {
        if (cancelled_ && *cancelled_) return fail(Errc::cancelled, "it was given up");
        const auto span = cancelled_ ? std::min(timeout, kLook) : timeout;
        code = dtrun_multi_get(worker_, views.data(), views.size(), span.count(), &list);
        timeout -= span;
        last = timeout.count() <= 0;
    }
    // The store answers DTRUN_NOT_FOUND if the timeout is 0.
    if (code == DTRUN_NOT_FOUND) return fail(Errc::timed_out, "{}", dtrun_error_text());
    if (code != DTRUN_OK) return store_error(code);
    std::vector<std::string> values;
    for (std::size_t i = 0; i < list.count; ++i)
        values.emplace_back(static_cast<const char*>(list.items[i].data), list.items[i].size);
    dtrun_free(list.items);
    return values;
}

Result<std::optional<std::string>> WorkerStore::find(const std::string& key) {
    if (auto there = still_there(); !there) return std::unexpected(there.error());
    if (cancelled_ && *cancelled_) return fail(Errc::cancelled, "it was given up");
    dtrun_bytes value{};
    const int code = dtrun_get(worker_, view(key), 0, &value);
    if (code == DTRUN_NOT_FOUND) return std::nullopt;
    if (code != DTRUN_OK) return store_error(code);
    return take(value);
}

}  // namespace dtrun::collectives
