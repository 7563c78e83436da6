#include "collectives/coordinator/coordinator.h"

#include "collectives/quiet_thread.h"
#include "collectives/user_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

namespace dtrun::collectives {
namespace {

/// A message up to that length travels in the first and only allgather of a cycle.
constexpr std::size_t kInlineBytes = 244;
struct Frame {
    std::int64_t now_ms;
    std::uint32_t bytes;
    char head[kInlineBytes];
};

/// How long to sleep after a cycle in which nobody had anything new: from, and doubled up to.
constexpr std::chrono::microseconds kPauseMin{50};
constexpr std::chrono::microseconds kPauseMax{1'000};

std::vector<std::uint32_t> names_or_numbers(std::vector<std::uint32_t> names, std::size_t size) {
    if (names.size() == size) return names;
    std::vector<std::uint32_t> numbers(size);
    std::iota(numbers.begin(), numbers.end(), 0u);
    return numbers;
}

/// Whether a rank may leave while others are in an operation that they do not need: they have to
/// notice that in time, as Gloo's do not, and must not be ended by it, as MPI's are.
bool may_be_left(std::string_view backend) {
    return backend == "dtrun";
}

std::chrono::milliseconds time_here() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

Coordinator::Coordinator(OwnedComm comm, CoordinatorOptions options)
    : comm_(std::move(comm)),
      delay_(options.delay),
      fused_bytes_(options.fused_bytes),
      stall_(options.stall),
      rank_(dtrun_comm_rank(comm_.get())),
      size_(dtrun_comm_size(comm_.get())),
      enters_idle_(size_ > 1 && may_be_left(dtrun_comm_backend(comm_.get()))),
      names_(names_or_numbers(std::move(options.names), size_)),
      negotiator_(names_),
      executor_(comm_.get()),
      reports_(std::move(options.tell_stall)) {
    thread_ = quiet_thread([this] { run(); });
}

Coordinator::~Coordinator() {
    bool pending = false, is_idle = false;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        pending = !waiting_.empty();
        is_idle = is_idle_;
    }
    work_.notify_all();
    if (is_idle) dtrun_comm_abort(comm_.get(), "it was shut down");
    if (pending) dtrun_comm_abort(comm_.get(), "it was shut down while operations were pending");
    thread_.join();
}

Result<Coordinator::Handle> Coordinator::submit(Task task) {
    const std::lock_guard lock(mutex_);
    if (broken_) return fail(broken_->code, "{}", broken_->message);
    const auto [at, is_new] = waiting_.try_emplace(task.request.name);
    if (!is_new)
        return fail(Errc::invalid_input,
                    "\"{}\" is pending already: give each operation a name of its own, or wait for "
                    "the earlier one",
                    task.request.name);
    const Handle handle = next_handle_++;
    at->second = {std::move(task), handle};
    results_.try_emplace(handle);
    fresh_.push_back(&at->second);
    if (waiting_.size() == 1) silence_.begin(time_here());
    if (fresh_.size() == 1) work_.notify_one();
    return handle;
}

bool Coordinator::poll(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto at = results_.find(handle);
    return at == results_.end() || at->second.has_value();
}

std::optional<Result<Outcome>> Coordinator::wait(Handle handle, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    auto at = results_.end();
    const bool over = done_.wait_for(lock, timeout, [&] {
        at = results_.find(handle);
        return at == results_.end() || at->second.has_value();
    });
    if (!over) {
        const SilenceCheck::Finding found = silence();
        if (found.line.empty()) return std::nullopt;
        reports_.add(found.what, found.age);  // its end comes after it
        lock.unlock();
        tell_user_who_waits({&found.line, 1});
        return std::nullopt;
    }
    if (at == results_.end())
        return fail(Errc::invalid_input, "there is no operation {}: wait for each once", handle);
    auto result = std::move(at->second);
    results_.erase(at);
    return result;
}

/// What is to be told while no other rank answers; the mutex is held. A rank that has nothing pending answers within
/// twice the time of a look, where it does at all.
SilenceCheck::Finding Coordinator::silence() {
    if (waiting_.empty() || !stall_.any()) return {};
    const auto first = std::ranges::min_element(
        waiting_, {}, [](const auto& waiting) { return waiting.second.handle; });
    const auto limit =
        stall_.warning + (enters_idle_ ? 2 * stall_.look_every() : std::chrono::milliseconds(0));
    return silence_.look(time_here(), limit, first->first, waiting_.size());
}

bool Coordinator::wait_for_work(std::chrono::microseconds pause) {
    std::unique_lock lock(mutex_);
    const auto has_work = [this] { return stopping_ || !waiting_.empty(); };
    if (enters_idle_ && stall_.any()) {
        is_idle_ = !work_.wait_for(lock, stall_.look_every(), has_work);
        if (is_idle_) return true;
    }
    work_.wait(lock, has_work);
    const auto has_news = [this] { return stopping_ || !fresh_.empty(); };
    if (pause.count() > 0) work_.wait_for(lock, pause, has_news);
    if (delay_.count() > 0 && !fresh_.empty())
        work_.wait_for(lock, delay_, [this] { return stopping_; });
    silence_.begin(time_here());
    return !stopping_;
}

std::string Coordinator::take_fresh() {
    std::string message;
    const std::lock_guard lock(mutex_);
    for (const Waiting* const waiting : fresh_)
        negotiator_.announce(message, waiting->task.encoded, waiting->task.extras);
    fresh_.clear();
    return message;
}

Result<Coordinator::Messages> Coordinator::exchange(const std::string& own) {
    Frame frame{time_here().count(), static_cast<std::uint32_t>(own.size()), {}};
    std::memcpy(frame.head, own.data(), std::min(own.size(), kInlineBytes));
    std::vector<Frame> frames(size_);
    if (const int code =
            dtrun_allgather(comm_.get(), &frame, frames.data(), sizeof frame, DTRUN_U8))
        return comm_error(code);
    Messages all_messages{.by_rank = std::vector<std::string>(size_),
                          .now = std::chrono::milliseconds(frames[0].now_ms)};
    std::vector<std::string>& messages = all_messages.by_rank;
    std::vector<std::size_t> sizes(size_);
    std::size_t all = 0;
    bool is_long = false;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
        all += sizes[rank] = frames[rank].bytes;
        is_long = is_long || sizes[rank] > kInlineBytes;
        if (sizes[rank] <= kInlineBytes) messages[rank].assign(frames[rank].head, sizes[rank]);
    }
    if (!is_long) return all_messages;
    std::string rest(all, '\0');
    if (const int code =
            dtrun_allgatherv(comm_.get(), own.data(), rest.data(), sizes.data(), DTRUN_U8))
        return comm_error(code);
    std::size_t at = 0;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
        messages[rank] = rest.substr(at, sizes[rank]);
        at += sizes[rank];
    }
    return all_messages;
}

/// Ranks have to decide alike, whatever their environment says: the least of them all counts.
Result<void> Coordinator::agree_on_options() {
    constexpr auto kNever = std::numeric_limits<std::int64_t>::max();
    const auto or_never = [](std::chrono::milliseconds time) {
        return time.count() > 0 ? time.count() : kNever;
    };
    const auto time_of = [](std::int64_t ms) {
        return std::chrono::milliseconds(ms == kNever ? 0 : ms);
    };
    std::array<std::int64_t, 3> least{
        static_cast<std::int64_t>(std::min<std::size_t>(fused_bytes_, kNever)),
        or_never(stall_.warning), or_never(stall_.shutdown)};
    if (const int code = dtrun_allreduce(comm_.get(), least.data(), least.data(), least.size(),
                                         DTRUN_I64, DTRUN_MIN, nullptr))
        return comm_error(code);
    fused_bytes_ = static_cast<std::size_t>(least[0]);
    {
        // Over other backends only a rank that has something pending is heard of.
        const std::lock_guard lock(mutex_);
        stall_ = {.warning = time_of(least[1]),
                  .shutdown = time_of(enters_idle_ ? least[2] : kNever)};
    }
    stall_check_.emplace(stall_, names_);
    options_agreed_ = true;
    return {};
}

void Coordinator::run() {
    std::chrono::microseconds pause{0};
    while (wait_for_work(pause)) {
        Result<void> done;
        try {
            done = cycle(pause);
        } catch (const std::exception& error) {
            done = fail(Errc::internal, "{}", error.what());
            dtrun_comm_abort(comm_.get(), error.what());
        }
        if (!done) return fail_all(done.error());
    }
    fail_all({Errc::cancelled, "it was shut down while this operation was pending"});
}

Result<void> Coordinator::cycle(std::chrono::microseconds& pause) {
    if (!options_agreed_)
        if (auto agreed = agree_on_options(); !agreed) return agreed;
    const auto messages = exchange(take_fresh());
    if (!messages) return std::unexpected(messages.error());
    std::string silent;
    {
        const std::lock_guard lock(mutex_);
        is_idle_ = false;
        silent = silence_.end();
    }
    if (!silent.empty()) reports_.end(silent);
    const bool news =
        std::ranges::any_of(messages->by_rank, [](const auto& m) { return !m.empty(); });
    pause = news ? std::chrono::microseconds{0} : std::clamp(pause * 2, kPauseMin, kPauseMax);
    const std::vector<std::string_view> views(messages->by_rank.begin(), messages->by_rank.end());
    auto responses = negotiator_.take(views, messages->now);
    if (!responses) return std::unexpected(responses.error());
    if (auto done = perform(std::move(*responses)); !done) return done;
    return look_for_stalls(messages->now);
}

/// All ranks find the same; the first one tells the user, and those that wait tell their agents.
Result<void> Coordinator::look_for_stalls(std::chrono::milliseconds now) {
    if (!stall_.any() || now < next_look_) return {};
    next_look_ = now + stall_.look_every();
    const auto stalled = negotiator_.stalled();
    auto [lines, told, shutdown] = stall_check_->look(stalled, now);
    if (rank_ == 0 && shutdown.empty()) tell_user_who_waits(lines);
    if (rank_ == 0 && !shutdown.empty()) tell_user({&shutdown, 1});
    std::erase_if(told, [this](const StallCheck::Told& one) {
        return !std::ranges::binary_search(one.waiting, rank_);
    });
    std::set<std::string> still;
    for (const StallCheck::Told& one : told) still.insert(one.what);
    reports_.keep_only(still);
    for (const StallCheck::Told& one : told) reports_.add(one.what, one.age);
    if (!shutdown.empty()) return fail(Errc::timed_out, "{}", shutdown);
    return {};
}

Result<void> Coordinator::perform(std::vector<Response> responses) {
    std::vector<Job> jobs;
    {
        const std::lock_guard lock(mutex_);
        for (const Response& response : responses) {
            const auto own = waiting_.find(response.request->name);
            const bool present = response.present[rank_] && own != waiting_.end();
            jobs.push_back({&response, present ? &own->second.task : nullptr});
        }
    }
    const std::vector<Batch> batches = plan_batches(responses, fused_bytes_);
    // A request is over with the last batch that has one of its tensors.
    std::vector<std::size_t> parts_left(responses.size(), 0);
    std::vector<std::optional<Error>> failed(responses.size());
    for (const Batch& batch : batches)
        for (const FusedTensor& part : batch.parts) ++parts_left[part.response];
    const auto finish_if_own = [&](std::size_t i, Result<Outcome> result) {
        if (jobs[i].task != nullptr) finish(responses[i].request->name, std::move(result));
    };
    for (const Batch& batch : batches) {
        if (batch.parts.empty()) {
            const Response& response = responses[batch.response];
            Result<Outcome> result = fail(Errc::invalid_input, "{}", response.failure);
            if (response.failure.empty()) result = executor_.perform(jobs[batch.response]);
            if (!result && result.error().code != Errc::invalid_input)
                return std::unexpected(result.error());
            finish_if_own(batch.response, std::move(result));
            continue;
        }
        const auto done = executor_.reduce(jobs, batch.parts);
        if (!done && done.error().code != Errc::invalid_input) return done;
        for (const FusedTensor& part : batch.parts) {
            if (!done) failed[part.response] = done.error();
            if (--parts_left[part.response] > 0) continue;
            if (failed[part.response])
                finish_if_own(part.response, std::unexpected(*failed[part.response]));
            else
                finish_if_own(part.response, Outcome{});
        }
    }
    return {};
}

void Coordinator::finish(const std::string& name, Result<Outcome> result) {
    const std::lock_guard lock(mutex_);
    const auto at = waiting_.find(name);
    const Handle handle = at->second.handle;
    waiting_.erase(at);
    results_.at(handle) = std::move(result);
    done_.notify_all();
}

void Coordinator::fail_all(const Error& error) {
    reports_.keep_only({});
    const std::lock_guard lock(mutex_);
    broken_ = error;
    for (const auto& [name, waiting] : waiting_)
        results_.at(waiting.handle) = std::unexpected(error);
    waiting_.clear();
    fresh_.clear();
    is_idle_ = false;
    done_.notify_all();
}

}  // namespace dtrun::collectives
