/// dtrun's embedded client for C++17: <dtrun.h> with strings, exceptions and a destructor. Header
/// only; link with dtrun::dtrun (CMake) or `pkg-config --libs dtrun`, or with dtrun::dtrun_static or `pkg-config --libs
/// dtrun-static`, after which hosts need no library of dtrun's.
///
/// Built without exceptions (-fno-exceptions) the same functions return a Result, which is a value or an Error.
#pragma once

#include <dtrun.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dtrun {
// Other types without exceptions: both may be linked into one program.
#if defined(__cpp_exceptions)
#define DTRUN_NAMESPACE v0
#else
#define DTRUN_NAMESPACE v0_without_exceptions
#endif
inline namespace DTRUN_NAMESPACE {

/// How long a call may wait: std::nullopt (forever) or milliseconds, 0 or less for "not at all".
using Timeout = std::optional<std::chrono::milliseconds>;
inline constexpr std::nullopt_t forever = std::nullopt;

/// Of errors; values are those of dtrun_code.
inline const std::error_category& error_category() noexcept {
    class Category final : public std::error_category {
        const char* name() const noexcept override { return "dtrun"; }
        std::string message(int code) const override { return dtrun_code_name(code); }
    };
    static const Category category;
    return category;
}

/// What every function here throws, or returns in its Result. `what()` is ready to be shown.
class Error : public std::system_error {
public:
    Error(int code, const char* text)
        : std::system_error(code, error_category()),
          text_(std::make_shared<const std::string>(text)) {}
    const char* what() const noexcept override {
        return text_ ? text_->c_str() : std::system_error::what();
    }
    bool is(dtrun_code code) const noexcept { return this->code().value() == code; }

private:
    std::shared_ptr<const std::string> text_;  ///< the code's name does not hang behind it
};

#if defined(__cpp_exceptions)

/// What a function returns that throws an Error if it fails.
template <class T>
using Returned = T;

/// What make() makes, unless the code is a failure's.
template <class Make>
auto returned(int code, Make make) -> decltype(make()) {
    if (code != DTRUN_OK) throw Error(code, dtrun_error_text());
    return make();
}

#else

/// A value, or an Error where there is none.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : value_(std::move(value)) {}
    Result(Error error) : error_(std::move(error)) {}
    explicit operator bool() const noexcept { return value_.has_value(); }
    T& operator*() { return *value_; }
    const T& operator*() const { return *value_; }
    T* operator->() { return &*value_; }
    const T* operator->() const { return &*value_; }
    const Error& error() const { return *error_; }  ///< requires a failure

private:
    std::optional<T> value_;
    std::optional<Error> error_;
};

template <>
class [[nodiscard]] Result<void> {
public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}
    explicit operator bool() const noexcept { return !error_; }
    const Error& error() const { return *error_; }  ///< requires a failure

private:
    std::optional<Error> error_;
};

template <class T>
using Returned = Result<T>;

template <class Make>
auto returned(int code, Make make) -> Result<decltype(make())> {
    if (code != DTRUN_OK) return Error(code, dtrun_error_text());
    if constexpr (std::is_void_v<decltype(make())>)
        return {};
    else
        return make();
}

#endif

inline Returned<void> returned(int code) {
    return returned(code, [] {});
}

/// Something that a rank may want to know; see dtrun_event.
struct Event {
    dtrun_event_kind kind{};
    std::uint64_t generation = 0;
    std::chrono::milliseconds grace{0};  ///< until the process is killed; 0: not known
    std::string why;
};

/// What is known of the end of this generation; see dtrun_change.
using Change = dtrun_change;

/// For a Worker that can go on when hosts come, go and are lost; see dtrun_options.elastic.
struct Elastic {};
inline constexpr Elastic elastic{};

/// What a Worker may be told when it is made; see dtrun_options.
struct WorkerOptions {
    Timeout timeout = forever;           ///< to get a place; forever: what the launcher grants
    bool elastic = false;                ///< rejoin() works in an elastic job
    Timeout call_timeout = forever;      ///< of calls that have no timeout of their own
    int (*interrupted)(void) = nullptr;  ///< asked after signals; non-zero ends the call, CANCELLED
};

/// That has to hold for Worker::transact() to do anything; see dtrun_condition.
struct Condition {
    dtrun_condition_kind kind{};
    std::string_view key;
    std::string_view value{};
    std::uint64_t revision = 0;
};

/// What Worker::transact() does; see dtrun_action.
struct Action {
    dtrun_action_kind kind{};
    std::string_view key;
    std::string_view value{};
};

/// Of a key under a prefix; see dtrun_key_change.
struct KeyChange {
    std::uint64_t revision = 0;
    dtrun_key_change_kind kind{};
    std::string key;
    std::string value;
};

/// What is asked without a wait: what the function of that operation takes, and nothing else. What it views is read by
/// Worker::submit() only.
struct Submission {
    dtrun_store_operation operation{};
    std::vector<std::string_view> keys{};
    std::vector<std::string_view> values{};
    Timeout timeout = forever;  ///< of operations that have one
    std::optional<std::string_view> expected{};
    std::string_view after{};
    std::int64_t delta = 0;
    std::uint64_t number = 0;  ///< see dtrun_submission
    bool more = false;         ///< others follow at once, and may be sent with it
    std::uint32_t limit = 0;
    bool is_ephemeral = false;
    Timeout ttl = forever;
    std::vector<Condition> conditions{};
    std::vector<Action> actions{};
};

/// How a request has ended: with the results that its operation has, or with an error.
struct Answer {
    std::optional<Error> error;
    bool yes = false;
    std::int64_t number = 0;
    std::optional<std::string> value;
    std::vector<std::string> items;
    bool complete = false;  ///< of WATCH_PREFIX: the changes are all keys there are
    std::vector<KeyChange> changes;
    explicit operator bool() const noexcept { return !error; }
};

namespace detail {

/// Functions that wait for their requests' ends.
class Callbacks {
public:
    using Function = std::function<void(Answer)>;

    void* add(Function function) {
        auto kept = std::make_unique<Function>(std::move(function));
        void* const key = kept.get();
        const std::lock_guard<std::mutex> lock(mutex_);
        functions_.emplace(key, std::move(kept));
        return key;
    }
    Function take(void* key) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = functions_.find(key);
        if (found == functions_.end()) return {};
        const std::unique_ptr<Function> kept = std::move(found->second);
        functions_.erase(found);
        return std::move(*kept);
    }
    /// Tells those that wait that nothing comes any more.
    void end(const Error& error) {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto ended = std::exchange(functions_, {});
        lock.unlock();
        for (const auto& [key, function] : ended) {
            Answer answer;
            answer.error = error;
            if (*function) (*function)(std::move(answer));
        }
    }

private:
    std::mutex mutex_;
    std::unordered_map<void*, std::unique_ptr<Function>> functions_;
};

}  // namespace detail

/// One process's membership of a job. Any number of threads may be in its functions; <dtrun.h> says
/// more about each. Moving it while others use it is not allowed.
///
/// It is as large as <dtrun.h>: it has a function for each operation there, and nothing of its own
/// but the handle and functions to be called, so nothing else belongs here.
class Worker {
public:
    /// Finds the launcher and takes this process's place among the ranks: what constructors do, where there are
    /// no exceptions by which they could say that they have failed.
    static Returned<Worker> make(const WorkerOptions& options = {}) {
        dtrun_worker* worker = nullptr;
        return returned(init(options, &worker), [&] {
            return Worker(worker, std::make_shared<detail::Callbacks>(), true);
        });
    }

    /// Ends the membership before the destructor does. Calls of other threads end with CLOSED, and none
    /// may begin meanwhile (poll() is several calls); those that follow answer INVALID, as they do after a move.
    /// The functions of requests that are under way are called with CLOSED, unless this handle is shared or a prefix;
    /// they neither ask again nor throw then. The destructor calls none.
    /// \param failure  why this rank has failed; nullptr: all went well
    void finalize(const char* failure = nullptr) noexcept {
        dtrun_finalize(worker_.release(), failure);
        if (callbacks_ && is_first_)
            callbacks_->end(Error(DTRUN_CLOSED, "the worker is finalized"));
    }
    /// A second handle on the same membership, which ends before this one; see dtrun_share().
    Returned<Worker> share() {
        dtrun_worker* shared = nullptr;
        return returned(dtrun_share(handle(), &shared),
                        [&] { return Worker(shared, callbacks_, false); });
    }
    /// The same, through which every key of the store has a prefix; see dtrun_prefix().
    Returned<Worker> prefix(std::string_view prefix) {
        dtrun_worker* made = nullptr;
        return returned(dtrun_prefix(handle(), view(prefix), &made),
                        [&] { return Worker(made, callbacks_, false); });
    }
    /// Of the library, such as "0.1.0".
    static const char* version() noexcept { return dtrun_version(); }

    // ---- place; DTRUN_UNKNOWN where the launcher does not say ----

    std::string_view launcher() const { return dtrun_launcher(valid()); }
    std::string_view job() const { return dtrun_job(valid()); }
    std::string_view host_name() const { return dtrun_host_name(valid()); }
    std::uint64_t generation() const { return dtrun_generation(valid()); }
    std::uint32_t rank() const { return dtrun_rank(valid()); }
    std::uint32_t world_size() const { return dtrun_world_size(valid()); }
    /// world_size(), as MPI and Horovod call it.
    std::uint32_t size() const { return world_size(); }
    std::uint32_t local_rank() const { return dtrun_local_rank(valid()); }
    std::uint32_t local_size() const { return dtrun_local_size(valid()); }
    std::uint32_t cross_rank() const { return dtrun_cross_rank(valid()); }
    std::uint32_t cross_size() const { return dtrun_cross_size(valid()); }
    std::uint32_t node_rank() const { return dtrun_node_rank(valid()); }
    std::uint32_t node_count() const { return dtrun_node_count(valid()); }

    // ---- store ----

    Returned<void> set(std::string_view key, std::string_view value) {
        return returned(dtrun_set(handle(), view(key), view(value)));
    }

    /// The value, once it exists. \throws Error  TIMED_OUT, NOT_FOUND (timeout 0)
    Returned<std::string> get(std::string_view key, Timeout timeout = forever) {
        dtrun_bytes value{};
        return returned(dtrun_get(handle(), view(key), ms(timeout), &value),
                        [&] { return take(value); });
    }

    /// The value if it exists now.
    Returned<std::optional<std::string>> find(std::string_view key) {
        dtrun_bytes value{};
        const int code = dtrun_get(handle(), view(key), 0, &value);
        return returned(code == DTRUN_NOT_FOUND ? DTRUN_OK : code,
                        [&] { return take_optional(value); });
    }

    /// Returns once all keys exist. \throws Error  TIMED_OUT
    Returned<void> wait(const std::vector<std::string_view>& keys, Timeout timeout = forever) {
        const auto all = views(keys);
        return returned(dtrun_wait(handle(), all.data(), all.size(), ms(timeout)));
    }

    /// The sum; a missing key counts as 0. \throws Error  WRONG_TYPE
    Returned<std::int64_t> add(std::string_view key, std::int64_t delta) {
        std::int64_t sum = 0;
        return returned(dtrun_add(handle(), view(key), delta, &sum), [&] { return sum; });
    }

    struct Compared {
        bool was_set = false;
        std::optional<std::string> now;  ///< the value after the call
    };
    /// \param expected  std::nullopt: "missing"
    Returned<Compared> compare_set(std::string_view key, std::optional<std::string_view> expected,
                                   std::string_view desired) {
        const dtrun_view old = view(expected.value_or(std::string_view()));
        int was_set = 0;
        dtrun_bytes now{};
        return returned(dtrun_compare_set(handle(), view(key), expected ? &old : nullptr,
                                          view(desired), &was_set, &now),
                        [&] {
                            return Compared{was_set != 0, take_optional(now)};
                        });
    }

    /// \return bytes of the value now
    Returned<std::uint64_t> append(std::string_view key, std::string_view value) {
        std::uint64_t size = 0;
        return returned(dtrun_append(handle(), view(key), view(value), &size),
                        [&] { return size; });
    }

    /// Whether all keys exist.
    Returned<bool> all_exist(const std::vector<std::string_view>& keys) {
        const auto all = views(keys);
        int exist = 0;
        return returned(dtrun_exists(handle(), all.data(), all.size(), &exist),
                        [&] { return exist != 0; });
    }

    Returned<bool> exists(std::string_view key) { return all_exist({key}); }

    /// \return whether it existed
    Returned<bool> erase(std::string_view key) {
        int existed = 0;
        return returned(dtrun_delete(handle(), view(key), &existed), [&] { return existed != 0; });
    }

    /// Deletes all keys and queues under a prefix. \return how many
    Returned<std::uint64_t> erase_prefix(std::string_view prefix) {
        std::uint64_t count = 0;
        return returned(dtrun_erase_prefix(handle(), view(prefix), &count), [&] { return count; });
    }

    /// All values in the order of the keys, once all exist. \throws Error  TIMED_OUT, NOT_FOUND
    Returned<std::vector<std::string>> multi_get(const std::vector<std::string_view>& keys,
                                                 Timeout timeout = forever) {
        const auto all = views(keys);
        dtrun_list values{};
        return returned(dtrun_multi_get(handle(), all.data(), all.size(), ms(timeout), &values),
                        [&] { return take(values); });
    }

    /// All at once.
    Returned<void> multi_set(
        const std::vector<std::pair<std::string_view, std::string_view>>& keys_and_values) {
        std::vector<dtrun_view> keys, values;
        for (const auto& [key, value] : keys_and_values) {
            keys.push_back(view(key));
            values.push_back(view(value));
        }
        return returned(dtrun_multi_set(handle(), keys.data(), values.data(), keys.size()));
    }

    struct Keys {
        std::vector<std::string> keys;
        bool more = false;  ///< there are others behind these
    };
    /// Keys in order that begin with `prefix` and come behind `after`.
    Returned<Keys> list_keys(std::string_view prefix, std::string_view after = {},
                             std::uint32_t limit = 1'000) {
        dtrun_list keys{};
        int more = 0;
        return returned(dtrun_list_keys(handle(), view(prefix), view(after), limit, &keys, &more),
                        [&] {
                            return Keys{take(keys), more != 0};
                        });
    }

    /// \return length of the queue now
    Returned<std::uint64_t> push(std::string_view key, std::string_view value) {
        std::uint64_t length = 0;
        return returned(dtrun_push(handle(), view(key), view(value), &length),
                        [&] { return length; });
    }

    /// The oldest value of a queue, once there is one. \throws Error  TIMED_OUT, NOT_FOUND
    Returned<std::string> pop(std::string_view key, Timeout timeout = forever) {
        dtrun_bytes value{};
        return returned(dtrun_pop(handle(), view(key), ms(timeout), &value),
                        [&] { return take(value); });
    }

    Returned<std::uint64_t> length(std::string_view key) {
        std::uint64_t length = 0;
        return returned(dtrun_length(handle(), view(key), &length), [&] { return length; });
    }

    struct Watched {
        std::uint64_t revision = 0;
        std::optional<std::string> value;
    };
    /// Returns once the key's revision is another one. \throws Error  TIMED_OUT
    Returned<Watched> watch(std::string_view key, std::uint64_t revision,
                            Timeout timeout = forever) {
        dtrun_bytes value{};
        return returned(dtrun_watch(handle(), view(key), &revision, ms(timeout), &value), [&] {
            return Watched{revision, take_optional(value)};
        });
    }

    /// Number of keys and queues.
    Returned<std::uint64_t> count() {
        std::uint64_t count = 0;
        return returned(dtrun_count(handle(), &count), [&] { return count; });
    }

    // ---- without a thread for each wait ----

    /// Asks, and does not wait: poll() calls `answered` when it has ended.
    /// \return for cancel()
    Returned<std::uint64_t> submit(const Submission& request,
                                   std::function<void(Answer)> answered) {
        const auto keys = views(request.keys), values = views(request.values);
        const dtrun_view expected = view(request.expected.value_or(std::string_view()));
        dtrun_submission asked{};
        asked.size = sizeof asked;
        asked.operation = request.operation;
        asked.more = request.more ? 1 : 0;
        asked.keys = keys.data();
        asked.key_count = keys.size();
        asked.values = values.data();
        asked.value_count = values.size();
        asked.expected = request.expected ? &expected : nullptr;
        asked.after = view(request.after);
        asked.delta = request.delta;
        asked.number = request.number;
        asked.timeout_ms = ms(request.timeout);
        asked.limit = request.limit;
        asked.flags = request.is_ephemeral ? DTRUN_EPHEMERAL : 0;
        asked.ttl_ms = request.ttl ? std::max<std::int64_t>(ms(request.ttl), 1) : 0;
        const auto conditions = conditions_of(request.conditions);
        const auto actions = actions_of(request.actions);
        asked.conditions = conditions.data();
        asked.condition_count = conditions.size();
        asked.actions = actions.data();
        asked.action_count = actions.size();
        asked.argument = callbacks_ ? callbacks_->add(std::move(answered)) : nullptr;
        std::uint64_t id = 0;
        const int code = dtrun_submit(handle(), &asked, &id);
        if (code != DTRUN_OK && callbacks_) (void)callbacks_->take(asked.argument);
        return returned(code, [&] { return id; });
    }

    /// Calls the functions of requests that have ended, in this thread; waits for the first at most that long.
    /// For all handles of this membership, in which nobody else is to call dtrun_complete().
    /// \return how many they were; 0: none in time
    Returned<std::size_t> poll(Timeout timeout = std::chrono::milliseconds(0)) {
        constexpr std::size_t kAtOnce = 1'000;  // others may want this thread, too
        std::size_t count = 0;
        for (; count < kAtOnce; ++count) {
            dtrun_completion ended{};
            ended.size = sizeof ended;
            const int code = dtrun_complete(handle(), count == 0 ? ms(timeout) : 0, &ended);
            const bool is_end = code == DTRUN_TIMED_OUT || (code != DTRUN_OK && count > 0);
            if (is_end) break;
            if (code != DTRUN_OK) return returned(code, [&] { return count; });
            Answer answer = take(ended);
            if (const auto answered = callbacks_->take(ended.argument)) answered(std::move(answer));
        }
        return count;
    }

    /// Its function is called all the same; see dtrun_cancel(). \return false: it has ended
    bool cancel(std::uint64_t id) { return dtrun_cancel(handle(), id) == DTRUN_OK; }

    // ---- owners; see <dtrun.h> ----

    /// A value that does not stay: it lives for that long, or as long as this worker.
    Returned<void> put(std::string_view key, std::string_view value, bool is_ephemeral,
                       Timeout ttl = forever) {
        // 0 would be for ever.
        const std::int64_t life = ttl ? std::max<std::int64_t>(ms(ttl), 1) : 0;
        const int flags = is_ephemeral ? DTRUN_EPHEMERAL : 0;
        return returned(dtrun_put(handle(), view(key), view(value), flags, life));
    }

    /// Makes an ephemeral key once it is missing. \return the token; \throws Error  TIMED_OUT
    Returned<std::uint64_t> lock(std::string_view key, std::string_view value = {},
                                 Timeout timeout = forever) {
        std::uint64_t token = 0;
        return returned(dtrun_lock(handle(), view(key), view(value), ms(timeout), &token),
                        [&] { return token; });
    }

    /// \return false: it was lost before
    Returned<bool> unlock(std::string_view key, std::uint64_t token) {
        int was_held = 0;
        return returned(dtrun_unlock(handle(), view(key), token, &was_held),
                        [&] { return was_held != 0; });
    }

    struct Claim {
        std::string value;
        std::uint64_t item = 0;
    };
    /// As pop(), but the item comes back if this worker does not acknowledge it before it ends.
    Returned<Claim> claim(std::string_view key, Timeout timeout = forever) {
        dtrun_bytes value{};
        std::uint64_t item = 0;
        return returned(dtrun_claim(handle(), view(key), ms(timeout), &value, &item), [&] {
            return Claim{take(value), item};
        });
    }

    /// The item is done. \return false: it is somebody else's by now
    Returned<bool> acknowledge(std::string_view key, std::uint64_t item) {
        int done = 0;
        return returned(dtrun_acknowledge(handle(), view(key), item, &done),
                        [&] { return done != 0; });
    }

    /// The item is for others. \return as above
    Returned<bool> give_back(std::string_view key, std::uint64_t item) {
        int done = 0;
        return returned(dtrun_give_back(handle(), view(key), item, &done),
                        [&] { return done != 0; });
    }

    // ---- several keys ----

    using Condition = dtrun::Condition;
    using Action = dtrun::Action;
    /// If all conditions hold all actions are done, at one moment; else none.
    /// \return nothing: it was done; else the index of the first condition that does not hold
    Returned<std::optional<std::size_t>> transact(const std::vector<Condition>& conditions,
                                                  const std::vector<Action>& actions) {
        const auto if_all = conditions_of(conditions);
        const auto then_all = actions_of(actions);
        int done = 0;
        std::uint64_t failed = 0;
        const int code = dtrun_transact(handle(), if_all.data(), if_all.size(), then_all.data(),
                                        then_all.size(), &done, &failed);
        return returned(code, [&]() -> std::optional<std::size_t> {
            if (done != 0) return std::nullopt;
            return static_cast<std::size_t>(failed);
        });
    }

    using KeyChange = dtrun::KeyChange;
    struct KeyChanges {
        std::uint64_t revision = 0;  ///< for the next call
        bool complete = false;       ///< these are all keys there are: forget what you knew
        std::vector<KeyChange> changes;
    };
    /// Every change under a prefix, in order; nothing but a larger revision when the time has passed.
    Returned<KeyChanges> watch_prefix(std::string_view prefix, std::uint64_t revision,
                                      Timeout timeout = forever, std::uint32_t limit = 0) {
        dtrun_key_changes changes{};
        const int code =
            dtrun_watch_prefix(handle(), view(prefix), &revision, limit, ms(timeout), &changes);
        return returned(code == DTRUN_TIMED_OUT ? DTRUN_OK : code, [&] {
            return KeyChanges{revision, changes.complete != 0, take(changes)};
        });
    }

    // ---- all ranks together ----

    /// Returns once every rank has called it.
    /// \throws Error  TIMED_OUT, CANCELLED (another rank gave up), STALE, FORKED, NO_LAUNCHER
    Returned<void> barrier(std::string_view name, Timeout timeout = forever) {
        return returned(dtrun_barrier(handle(), view(name), ms(timeout)));
    }

    /// As barrier(). \return the bytes of all, by rank
    Returned<std::vector<std::string>> fence(std::string_view name, std::string_view bytes,
                                             Timeout timeout = forever) {
        dtrun_list all{};
        return returned(dtrun_fence(handle(), view(name), view(bytes), ms(timeout), &all),
                        [&] { return take(all); });
    }

    /// How far this rank is, for whoever watches.
    Returned<void> progress(std::uint64_t step) { return returned(dtrun_progress(handle(), step)); }

    // ---- events ----

    /// The oldest event that nobody has taken; nothing when the time has passed.
    Returned<std::optional<Event>> next_event(Timeout timeout = forever) {
        dtrun_event event{};
        const int code = dtrun_next_event(handle(), ms(timeout), &event);
        const bool is_none = code == DTRUN_TIMED_OUT;
        return returned(is_none ? DTRUN_OK : code, [&]() -> std::optional<Event> {
            if (is_none) return std::nullopt;
            const Block why(event.why);
            return Event{static_cast<dtrun_event_kind>(event.kind), event.generation,
                         std::chrono::milliseconds(event.grace_ms), event.why};
        });
    }

    /// To be polled for reading: then next_event(0ms) may have one.
    Returned<int> event_fd() {
        int fd = -1;
        return returned(dtrun_event_fd(handle(), &fd), [&] { return fd; });
    }

    // ---- generations ----

    /// Takes a place in the next generation. \throws Error  TIMED_OUT, REFUSED, CLOSED
    Returned<void> rejoin(Timeout timeout = forever) {
        return returned(dtrun_rejoin(handle(), ms(timeout)));
    }

    bool can_rejoin() const { return dtrun_can_rejoin(handle()) != 0; }

    /// The change that is coming, if one is: a look into memory, for every step of a program.
    std::optional<Change> change() const {
        Change change{};
        if (dtrun_change_pending(handle(), &change) == 0) return std::nullopt;
        return change;
    }

    /// Waits for a change; nothing when the time has passed.
    Returned<std::optional<Change>> wait_for_change(Timeout timeout = forever) {
        Change change{};
        const int code = dtrun_wait_for_change(handle(), ms(timeout), &change);
        const bool is_none = code == DTRUN_TIMED_OUT;
        return returned(is_none ? DTRUN_OK : code,
                        [&] { return is_none ? std::nullopt : std::optional<Change>(change); });
    }

    /// Has a function called when a rank of this generation is lost, by a thread of the library's own;
    /// see dtrun_on_loss(). \return for on_loss_end()
    Returned<std::uint64_t> on_loss(void (*lost)(void* argument), void* argument) {
        std::uint64_t id = 0;
        return returned(dtrun_on_loss(handle(), lost, argument, &id), [&] { return id; });
    }
    /// The function is not called any more, and has returned.
    Returned<void> on_loss_end(std::uint64_t id) {
        return returned(dtrun_on_loss_end(handle(), id));
    }

    /// For the names of what is written outside of the job.
    std::uint64_t token() const { return dtrun_token(valid()); }

    // ---- sections ----

    /// A part of the program that is not to take longer than `limit`; see dtrun_section().
    Returned<void> section(std::string_view name, std::chrono::milliseconds limit) {
        return returned(dtrun_section(handle(), view(name), ms(limit)));
    }
    Returned<void> section_end(std::string_view name) {
        return returned(dtrun_section_end(handle(), view(name)));
    }
    Returned<void> beat() { return returned(dtrun_beat(handle())); }

    // ---- what a rank waits for ----

    /// This rank has waited so long for something that may never come; see dtrun_stall().
    Returned<void> stall(std::string_view what, std::chrono::milliseconds waited) {
        return returned(dtrun_stall(handle(), view(what), ms(waited)));
    }
    Returned<void> stall_end(std::string_view what) {
        return returned(dtrun_stall_end(handle(), view(what)));
    }

    /// For functions of <dtrun.h>; nullptr after finalize() and a move.
    dtrun_worker* handle() const noexcept { return worker_.get(); }

    // ---- where there are exceptions ----

#if defined(__cpp_exceptions)
    /// Finds the launcher and takes this process's place among the ranks.
    /// \throws Error  INVALID (names the variable), TIMED_OUT, REFUSED, CLOSED
    explicit Worker(Timeout timeout = forever) : Worker(timeout, false) {}
    /// The same, and rejoin() works in an elastic job: `dtrun::Worker worker(dtrun::elastic)`.
    explicit Worker(Elastic, Timeout timeout = forever) : Worker(timeout, true) {}
    /// The same, as told: `dtrun::Worker worker(options)`.
    explicit Worker(const WorkerOptions& options) : Worker(make(options)) {}
#endif

private:
#if defined(__cpp_exceptions)
    Worker(Timeout timeout, bool is_elastic) : Worker(options_of(timeout, is_elastic)) {}
#endif
    Worker(dtrun_worker* worker, std::shared_ptr<detail::Callbacks> callbacks, bool is_first)
        : worker_(worker), callbacks_(std::move(callbacks)), is_first_(is_first) {}

    static WorkerOptions options_of(Timeout timeout, bool is_elastic) {
        WorkerOptions options;
        options.timeout = timeout;
        options.elastic = is_elastic;
        return options;
    }
    static int init(const WorkerOptions& given, dtrun_worker** worker) {
        dtrun_options options{};
        options.size = sizeof options;
        options.timeout_ms = ms(given.timeout);
        options.elastic = given.elastic ? 1 : 0;
        // 0 would be no limit.
        if (given.call_timeout)
            options.call_timeout_ms = std::max<std::int64_t>(ms(given.call_timeout), 1);
        options.interrupted = given.interrupted;
        return dtrun_init(&options, worker);
    }
    dtrun_worker* valid() const {
#if defined(__cpp_exceptions)
        if (worker_ == nullptr) throw Error(DTRUN_INVALID, "the worker is finalized, or was moved");
#endif
        return worker_.get();  // NULL is something that the functions answer
    }

    /// A destructor that runs because of an exception tells the others that this rank has failed.
    struct Finalize {
        Finalize() noexcept : exceptions(std::uncaught_exceptions()) {}
        int exceptions;
        void operator()(dtrun_worker* worker) const noexcept {
            const bool failed = std::uncaught_exceptions() > exceptions;
            dtrun_finalize(worker, failed ? "ended by an exception" : nullptr);
        }
    };
    struct Free {
        void operator()(void* data) const noexcept { dtrun_free(data); }
    };
    using Block = std::unique_ptr<void, Free>;

    /// A time that has passed is over: only std::nullopt is for ever.
    static std::int64_t ms(Timeout timeout) {
        if (!timeout) return DTRUN_FOREVER;
        return std::max<std::int64_t>(timeout->count(), 0);
    }
    static dtrun_view view(std::string_view text) {
        return {text.data(), text.size()};
    }
    static std::vector<dtrun_view> views(const std::vector<std::string_view>& texts) {
        std::vector<dtrun_view> all;
        all.reserve(texts.size());
        for (const std::string_view text : texts) all.push_back(view(text));
        return all;
    }
    static std::vector<dtrun_condition> conditions_of(const std::vector<Condition>& conditions) {
        std::vector<dtrun_condition> all;
        for (const Condition& one : conditions)
            all.push_back({one.kind, view(one.key), view(one.value), one.revision});
        return all;
    }
    static std::vector<dtrun_action> actions_of(const std::vector<Action>& actions) {
        std::vector<dtrun_action> all;
        for (const Action& one : actions) all.push_back({one.kind, view(one.key), view(one.value)});
        return all;
    }
    static std::vector<KeyChange> take(const dtrun_key_changes& changes) {
        const Block block(changes.items);
        std::vector<KeyChange> all;
        for (std::size_t i = 0; i < changes.count; ++i) {
            const dtrun_key_change& one = changes.items[i];
            all.push_back({one.revision, static_cast<dtrun_key_change_kind>(one.kind),
                           text(one.key), text(one.value)});
        }
        return all;
    }
    static Answer take(const dtrun_completion& ended) {
        Answer answer;
        if (ended.code != DTRUN_OK) answer.error.emplace(ended.code, dtrun_error_text());
        answer.yes = ended.yes != 0;
        answer.number = ended.number;
        answer.value = take_optional(ended.value);
        answer.items = take(ended.items);
        answer.complete = ended.changes.complete != 0;
        answer.changes = take(ended.changes);
        return answer;
    }
    static std::string text(dtrun_bytes bytes) {
        return {static_cast<const char*>(bytes.data), bytes.size};
    }
    static std::string take(dtrun_bytes bytes) {
        const Block block(bytes.data);
        return text(bytes);
    }
    static std::optional<std::string> take_optional(dtrun_bytes bytes) {
        if (bytes.data == nullptr) return std::nullopt;
        return take(bytes);
    }
    static std::vector<std::string> take(dtrun_list list) {
        const Block block(list.items);
        std::vector<std::string> items;
        items.reserve(list.count);
        for (std::size_t i = 0; i < list.count; ++i) items.push_back(text(list.items[i]));
        return items;
    }

    std::unique_ptr<dtrun_worker, Finalize> worker_;
    std::shared_ptr<detail::Callbacks> callbacks_;  ///< of all handles of the membership
    bool is_first_ = true;                          ///< not shared, and no prefix
};

}  // namespace DTRUN_NAMESPACE
}  // namespace dtrun

#undef DTRUN_NAMESPACE
