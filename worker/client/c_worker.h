#pragma once

#include "base/uncancelled.h"
#include "worker/client/client.h"
#include "worker/include/dtrun.h"

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <string_view>

// What the files of the C interface share.

struct dtrun_worker {
    dtrun_options options{};
    std::atomic<dtrun::embedded::Client*> client{nullptr};
    dtrun_worker* origin = nullptr;  ///< of a shared handle, which has no client of its own
    std::string prefix;              ///< of keys; see dtrun_prefix()
};

namespace dtrun::embedded {

/// The handle that has the client and the options: `worker`, or what it shares.
const dtrun_worker& origin_of(const dtrun_worker* worker);

/// This process's client: in a forked child, the first call makes one.
Client& client_of(dtrun_worker* worker);

/// Of a call that has no timeout of its own: negative if it has no limit.
std::int64_t call_timeout(const dtrun_worker* worker);

/// Keeps the text for dtrun_error_text().
/// \return `code`
int keep_error(int code, std::string_view text) noexcept;

/// Gives up a language's interpreter lock while a call of the program waits.
class Unlocked {
public:
    explicit Unlocked(const dtrun_options& options);
    ~Unlocked();
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

    /// Asks the program whether the call is to end; empty if it never wants that. Not for longer
    /// than this object lives.
    std::function<bool()> give_up();

private:
    void lock();

    const dtrun_options options_;  ///< a handle may be closed while a call through it waits
    void* state_ = nullptr;
};

/// Body of a function of the C interface that may wait: no exception leaves it, and what has failed
/// becomes a code and a text.
/// \param body  Outcome<void>(Client&, std::function<bool()> give_up)
template <class Body>
int call(dtrun_worker* worker, Body body) noexcept {
    if (worker == nullptr) return keep_error(DTRUN_INVALID, "worker is NULL");
    const Uncancelled uncancelled;
    try {
        Client& client = client_of(worker);
        const Callers::InCall in_call(client.callers());  // the worker stays until it ends
        Unlocked unlocked(worker->options);
        const Outcome<void> outcome = body(client, unlocked.give_up());
        return outcome ? DTRUN_OK : keep_error(outcome.error().code, outcome.error().text);
    } catch (const std::exception& error) {
        return keep_error(DTRUN_INTERNAL, error.what());
    }
}

/// As call(), for a function that has no timeout of its own and does not wait for an answer.
/// \param body  Outcome<void>(Client&, const WaitContext&)
template <class Body>
int tell(dtrun_worker* worker, Body body) noexcept {
    return call(worker, [&](Client& client, std::function<bool()> give_up) {
        return body(client, WaitContext{moment_after(call_timeout(worker)), std::move(give_up)});
    });
}

inline std::string_view text_of(dtrun_view view) {
    return {static_cast<const char*>(view.data), view.size};
}

/// By malloc(), with a zero behind them. Throws std::bad_alloc.
dtrun_bytes copy_out(std::string_view bytes);
/// Views of them, copied into one block, by malloc(). Throws std::bad_alloc.
dtrun_list copy_out(const std::vector<std::string_view>& items);
/// The same of changes. \param texts  the key and the value of each
void copy_out(std::vector<dtrun_key_change> changes, const std::vector<std::string_view>& texts,
              dtrun_key_changes& to);

}  // namespace dtrun::embedded
