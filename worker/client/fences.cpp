#include "worker/client/fences.h"

#include "worker/client/request_texts.h"

#include <algorithm>
#include <utility>

namespace dtrun::embedded {

Outcome<std::vector<FenceEntry>> Fences::meet(std::string_view name,
                                              std::optional<std::string_view> bytes,
                                              std::int64_t timeout_ms,
                                              std::function<bool()> give_up) {
    Call call;
    WaitContext context{moment_after(timeout_ms), std::move(give_up)};
    ServerConnection::Lock lock = connection_.lock();
    const RankInfo& info = membership_.rank_info();
    const Rank rank{info.rank};
    call.fence.generation = membership_.generation();
    call.fence.name = name;
    call.fence.round = rounds_.next(rank, name);
    rounds_.came(rank, name, call.fence.round);
    if (bytes) call.fence.entries.push_back({rank, Bytes(*bytes)});
    if (group_client_)
        call.of_group =
            GroupFence{*group_client_, info.job,        call.fence.name,    call.fence.round,
                       rank,           info.world_size, call.fence.entries, {}};
    lock.unlock();
    call.frame = call.of_group ? encode(*call.of_group) : encode(call.fence);
    bool is_under_way = false;
    auto ended = connection_.send_next(
        [&] {
            is_under_way = true;
            calls_.push_back(&call);
            return std::string_view(call.frame);
        },
        context);
    lock.lock();
    if (ended) ended = connection_.wait(lock, call, context);
    const bool timed_out = !ended && ended.error().code == DTRUN_TIMED_OUT;
    const bool interrupted = !ended && ended.error().code == DTRUN_CANCELLED;
    if (timed_out || interrupted) {
        const std::string why =
            timed_out ? fmt::format("rank {} waited {}", rank, seconds_text(timeout_ms))
                      : fmt::format("rank {} was interrupted", rank);
        const Bytes frame = give_up_frame(call, why);
        given_up_[{call.fence.name, call.fence.round}] = frame;
        lock.unlock();
        (void)connection_.send(frame, {now() + std::chrono::milliseconds(kAnswerGraceMs), {}});
        lock.lock();
    }
    if (timed_out && is_under_way) {
        context.deadline = now() + std::chrono::milliseconds(kAnswerGraceMs);
        ended = connection_.wait(lock, call, context);
    }
    std::erase(calls_, &call);
    if (!ended) return failure(ended.error().code, "fence '{}': {}", name, ended.error().text);
    auto result = result_of(call);
    if (!result && timed_out) result.error().code = DTRUN_TIMED_OUT;
    return result;
}

Result<void> Fences::on_fenced(std::string_view payload) {
    auto fenced = decode<Fenced>(payload);
    if (!fenced) return std::unexpected(fenced.error());
    const bool all = fenced->name.empty();  // a rank has ended
    if (fenced->generation == membership_.generation())
        all ? given_up_.clear() : void(given_up_.erase({fenced->name, fenced->round}));
    for (Call* call : calls_) {
        const Fence& fence = call->fence;
        if (call->done || fence.generation != fenced->generation) continue;
        if (!all && (fence.name != fenced->name || fence.round != fenced->round)) continue;
        if (all)
            call->result.why = fenced->why;
        else
            call->result = std::move(*fenced);
        call->finish();
        if (!all) break;
    }
    return {};
}

void Fences::begin(std::uint64_t generation) {
    rounds_.clear();
    given_up_.clear();
    for (Call* call : calls_) {
        if (call->done || call->fence.generation >= generation) continue;
        call->failure = {DTRUN_STALE, fmt::format("generation {} is over", call->fence.generation)};
        call->finish();
    }
}

void Fences::add_unfinished(std::vector<Bytes>& frames) const {
    for (const Call* call : calls_)
        if (!call->done) frames.push_back(call->frame);
    for (const auto& [key, frame] : given_up_) frames.push_back(frame);
}

Outcome<std::vector<FenceEntry>> Fences::result_of(Call& call) const {
    if (call.result.complete) return std::move(call.result.entries);
    const dtrun_code code = call.result.invalid ? DTRUN_INVALID : DTRUN_CANCELLED;
    return failure(code, "fence '{}': {}", call.fence.name, call.result.why);
}

Bytes Fences::give_up_frame(const Call& call, std::string why) {
    const Fence& fence = call.fence;
    if (!call.of_group)
        return encode(Unfence{fence.generation, fence.name, fence.round, std::move(why)});
    GroupFence of_group = *call.of_group;
    of_group.why = std::move(why);
    return encode(of_group);
}

}  // namespace dtrun::embedded
