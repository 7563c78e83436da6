/// dtrun's embedded client for C++17: <dtrun.h> with strings, exceptions and a destructor. Header
/// only; link with dtrun::dtrun (CMake) or `pkg-config --libs dtrun`.
#pragma once

#include <dtrun.h>

#if !defined(__cpp_exceptions)
#error \
    "<dtrun/worker.h> throws: build with exceptions, or use <dtrun.h>, whose functions return codes"
#endif

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace dtrun {
inline namespace v0 {

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

/// What every function here throws. `what()` is ready to be shown.
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

/// One process's membership of a job. Any number of threads may be in its functions; <dtrun.h> says
/// more about each. Moving it while others use it is not allowed.
///
/// It is as large as <dtrun.h>: it has a function for each operation there, and nothing of its own
/// but the handle, so nothing else belongs here.
class Worker {
public:
    /// Finds the launcher and takes this process's place among the ranks.
    /// \throws Error  INVALID (names the variable), TIMED_OUT, REFUSED, CLOSED
    explicit Worker(Timeout timeout = forever) : Worker(timeout, false) {}
    /// The same, and rejoin() works in an elastic job: `dtrun::Worker worker(dtrun::elastic)`.
    explicit Worker(Elastic, Timeout timeout = forever) : Worker(timeout, true) {}
    /// The same, as told: `dtrun::Worker worker(options)`.
    explicit Worker(const WorkerOptions& options) { init(options); }

    /// Ends the membership before the destructor does. Calls of other threads end with CLOSED, and none
    /// may begin meanwhile; those that follow answer INVALID, as they do after a move.
    /// \param failure  why this rank has failed; nullptr: all went well
    void finalize(const char* failure = nullptr) noexcept {
        dtrun_finalize(worker_.release(), failure);
    }
    /// A second handle on the same membership, which ends before this one; see dtrun_share().
    Worker share() {
        dtrun_worker* shared = nullptr;
        check(dtrun_share(handle(), &shared));
        return Worker(shared);
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
    std::uint32_t local_rank() const { return dtrun_local_rank(valid()); }
    std::uint32_t local_size() const { return dtrun_local_size(valid()); }
    std::uint32_t cross_rank() const { return dtrun_cross_rank(valid()); }
    std::uint32_t cross_size() const { return dtrun_cross_size(valid()); }
    std::uint32_t node_rank() const { return dtrun_node_rank(valid()); }
    std::uint32_t node_count() const { return dtrun_node_count(valid()); }

    // ---- store ----

    void set(std::string_view key, std::string_view value) {
        check(dtrun_set(handle(), view(key), view(value)));
    }

    /// The value, once it exists. \throws Error  TIMED_OUT, NOT_FOUND (timeout 0)
    std::string get(std::string_view key, Timeout timeout = forever) {
        dtrun_bytes value{};
        check(dtrun_get(handle(), view(key), ms(timeout), &value));
        return take(value);
    }

    /// The value if it exists now.
    std::optional<std::string> find(std::string_view key) {
        dtrun_bytes value{};
        const int code = dtrun_get(handle(), view(key), 0, &value);
        if (code == DTRUN_NOT_FOUND) return std::nullopt;
        check(code);
        return take(value);
    }

    /// Returns once all keys exist. \throws Error  TIMED_OUT
    void wait(const std::vector<std::string_view>& keys, Timeout timeout = forever) {
        const auto all = views(keys);
        check(dtrun_wait(handle(), all.data(), all.size(), ms(timeout)));
    }

    /// The sum; a missing key counts as 0. \throws Error  WRONG_TYPE
    std::int64_t add(std::string_view key, std::int64_t delta) {
        std::int64_t sum = 0;
        check(dtrun_add(handle(), view(key), delta, &sum));
        return sum;
    }

    struct Compared {
        bool was_set = false;
        std::optional<std::string> now;  ///< the value after the call
    };
    /// \param expected  std::nullopt: "missing"
    Compared compare_set(std::string_view key, std::optional<std::string_view> expected,
                         std::string_view desired) {
        const dtrun_view old = view(expected.value_or(std::string_view()));
        int was_set = 0;
        dtrun_bytes now{};
        check(dtrun_compare_set(handle(), view(key), expected ? &old : nullptr, view(desired),
                                &was_set, &now));
        return {was_set != 0, take_optional(now)};
    }

    /// \return bytes of the value now
    std::uint64_t append(std::string_view key, std::string_view value) {
        std::uint64_t size = 0;
        check(dtrun_append(handle(), view(key), view(value), &size));
        return size;
    }

    /// Whether all keys exist.
    bool all_exist(const std::vector<std::string_view>& keys) {
        const auto all = views(keys);
        int exist = 0;
        check(dtrun_check(handle(), all.data(), all.size(), &exist));
        return exist != 0;
    }

    /// \return whether it existed
    bool erase(std::string_view key) {
        int existed = 0;
        check(dtrun_erase(handle(), view(key), &existed));
        return existed != 0;
    }

    /// All values in the order of the keys, once all exist. \throws Error  TIMED_OUT, NOT_FOUND
    std::vector<std::string> multi_get(const std::vector<std::string_view>& keys,
                                       Timeout timeout = forever) {
        const auto all = views(keys);
        dtrun_list values{};
        check(dtrun_multi_get(handle(), all.data(), all.size(), ms(timeout), &values));
        return take(values);
    }

    /// All at once.
    void multi_set(
        const std::vector<std::pair<std::string_view, std::string_view>>& keys_and_values) {
        std::vector<dtrun_view> keys, values;
        for (const auto& [key, value] : keys_and_values) {
            keys.push_back(view(key));
            values.push_back(view(value));
        }
        check(dtrun_multi_set(handle(), keys.data(), values.data(), keys.size()));
    }

    struct Keys {
        std::vector<std::string> keys;
        bool more = false;  ///< there are others behind these
    };
    /// Keys in order that begin with `prefix` and come behind `after`.
    Keys list_keys(std::string_view prefix, std::string_view after = {},
                   std::uint32_t limit = 1'000) {
        dtrun_list keys{};
        int more = 0;
        check(dtrun_list_keys(handle(), view(prefix), view(after), limit, &keys, &more));
        return {take(keys), more != 0};
    }

    /// \return length of the queue now
    std::uint64_t push(std::string_view key, std::string_view value) {
        std::uint64_t length = 0;
        check(dtrun_push(handle(), view(key), view(value), &length));
        return length;
    }

    /// The oldest value of a queue, once there is one. \throws Error  TIMED_OUT, NOT_FOUND
    std::string pop(std::string_view key, Timeout timeout = forever) {
        dtrun_bytes value{};
        check(dtrun_pop(handle(), view(key), ms(timeout), &value));
        return take(value);
    }

    std::uint64_t length(std::string_view key) {
        std::uint64_t length = 0;
        check(dtrun_length(handle(), view(key), &length));
        return length;
    }

    struct Watched {
        std::uint64_t revision = 0;
        std::optional<std::string> value;
    };
    /// Returns once the key's revision is another one. \throws Error  TIMED_OUT
    Watched watch(std::string_view key, std::uint64_t revision, Timeout timeout = forever) {
        dtrun_bytes value{};
        check(dtrun_watch(handle(), view(key), &revision, ms(timeout), &value));
        return {revision, take_optional(value)};
    }

    /// Number of keys and queues.
    std::uint64_t count() {
        std::uint64_t count = 0;
        check(dtrun_count(handle(), &count));
        return count;
    }

    // ---- all ranks together ----

    /// Returns once every rank has called it.
    /// \throws Error  TIMED_OUT, CANCELLED (another rank gave up), STALE, FORKED, NO_LAUNCHER
    void barrier(std::string_view name, Timeout timeout = forever) {
        check(dtrun_barrier(handle(), view(name), ms(timeout)));
    }

    /// As barrier(). \return the bytes of all, by rank
    std::vector<std::string> fence(std::string_view name, std::string_view bytes,
                                   Timeout timeout = forever) {
        dtrun_list all{};
        check(dtrun_fence(handle(), view(name), view(bytes), ms(timeout), &all));
        return take(all);
    }

    /// How far this rank is, for whoever watches.
    void progress(std::uint64_t step) { check(dtrun_progress(handle(), step)); }

    // ---- events ----

    /// The oldest event that nobody has taken; nothing when the time has passed.
    std::optional<Event> next_event(Timeout timeout = forever) {
        dtrun_event event{};
        const int code = dtrun_next_event(handle(), ms(timeout), &event);
        if (code == DTRUN_TIMED_OUT) return std::nullopt;
        check(code);
        const Block why(event.why);
        return Event{static_cast<dtrun_event_kind>(event.kind), event.generation,
                     std::chrono::milliseconds(event.grace_ms), event.why};
    }

    /// To be polled for reading: then next_event(0ms) may have one.
    int event_fd() {
        int fd = -1;
        check(dtrun_event_fd(handle(), &fd));
        return fd;
    }

    // ---- generations ----

    /// Takes a place in the next generation. \throws Error  TIMED_OUT, REFUSED, CLOSED
    void rejoin(Timeout timeout = forever) { check(dtrun_rejoin(handle(), ms(timeout))); }

    bool can_rejoin() const { return dtrun_can_rejoin(handle()) != 0; }

    /// The change that is coming, if one is: a look into memory, for every step of a program.
    std::optional<Change> change() const {
        Change change{};
        if (dtrun_change_pending(handle(), &change) == 0) return std::nullopt;
        return change;
    }

    /// Waits for a change; nothing when the time has passed.
    std::optional<Change> wait_for_change(Timeout timeout = forever) {
        Change change{};
        const int code = dtrun_wait_for_change(handle(), ms(timeout), &change);
        if (code == DTRUN_TIMED_OUT) return std::nullopt;
        check(code);
        return change;
    }

    /// Has a function called when a rank of this generation is lost, by a thread of the library's own;
    /// see dtrun_on_loss(). \return for on_loss_end()
    std::uint64_t on_loss(void (*lost)(void* argument), void* argument) {
        std::uint64_t id = 0;
        check(dtrun_on_loss(handle(), lost, argument, &id));
        return id;
    }
    /// The function is not called any more, and has returned.
    void on_loss_end(std::uint64_t id) { check(dtrun_on_loss_end(handle(), id)); }

    /// For the names of what is written outside of the job.
    std::uint64_t token() const { return dtrun_token(valid()); }

    // ---- sections ----

    /// A part of the program that is not to take longer than `limit`; see dtrun_section().
    void section(std::string_view name, std::chrono::milliseconds limit) {
        check(dtrun_section(handle(), view(name), ms(limit)));
    }
    void section_end(std::string_view name) { check(dtrun_section_end(handle(), view(name))); }
    void beat() { check(dtrun_beat(handle())); }

    /// For functions of <dtrun.h>; nullptr after finalize() and a move.
    dtrun_worker* handle() const noexcept { return worker_.get(); }

private:
    Worker(Timeout timeout, bool is_elastic) {
        WorkerOptions options;
        options.timeout = timeout;
        options.elastic = is_elastic;
        init(options);
    }
    explicit Worker(dtrun_worker* worker) : worker_(worker) {}

    void init(const WorkerOptions& given) {
        dtrun_options options{};
        options.size = sizeof options;
        options.timeout_ms = ms(given.timeout);
        options.elastic = given.elastic ? 1 : 0;
        // 0 would be no limit.
        if (given.call_timeout)
            options.call_timeout_ms = std::max<std::int64_t>(ms(given.call_timeout), 1);
        options.interrupted = given.interrupted;
        dtrun_worker* worker = nullptr;
        check(dtrun_init(&options, &worker));
        worker_.reset(worker);
    }
    dtrun_worker* valid() const {
        if (worker_ == nullptr) throw Error(DTRUN_INVALID, "the worker is finalized, or was moved");
        return worker_.get();
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

    static void check(int code) {
        if (code != DTRUN_OK) throw Error(code, dtrun_error_text());
    }
    /// A time that has passed is over: only std::nullopt is for ever.
    static std::int64_t ms(Timeout timeout) {
        if (!timeout) return DTRUN_FOREVER;
        return std::max<std::int64_t>(timeout->count(), 0);
    }
    static dtrun_view view(std::string_view text) { return {text.data(), text.size()}; }
    static std::vector<dtrun_view> views(const std::vector<std::string_view>& texts) {
        std::vector<dtrun_view> all;
        all.reserve(texts.size());
        for (const std::string_view text : texts) all.push_back(view(text));
        return all;
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
};

}  // namespace v0
}  // namespace dtrun
