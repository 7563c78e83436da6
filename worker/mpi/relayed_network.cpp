#include "worker/mpi/relayed_network.h"

#include "base/log.h"
#include "rendezvous/exchange/fence_table.h"

namespace dtrun::mpi {
namespace {

std::string mailbox(std::uint32_t node_rank) {
    return fmt::format("dtrun/mail/{}", node_rank);
}

}  // namespace

void RelayedNetwork::begin(const MpiWorld& world) {
    generation_ = world.generation;
    node_rank_ = world.node_rank;
    first_rank_ = world.ranks.empty() ? kNoRank : Rank{world.ranks.front()};
    ranks_ = static_cast<std::uint32_t>(world.ranks.size());
    rounds_.clear();
    fences_.clear();
    met_ = false;
    take_mail_ = nullptr;
    queries_.forget_all();
    store_.begin(generation_);
}

Result<void> RelayedNetwork::on_frame(const FrameView& frame) {
    if (frame.type == FrameType::reply) return store_.on_reply(frame.payload);
    if (frame.type == FrameType::fenced) return on_fenced(frame.payload);
    return {};
}

void RelayedNetwork::fence(std::string_view name, std::string bytes, Fenced done) {
    Fence fence;
    fence.generation = generation_;
    fence.name = name;
    fence.round = rounds_[fence.name]++;
    fence.ranks = ranks_;
    fence.entries.push_back({first_rank_, std::move(bytes)});
    fences_[{fence.name, fence.round}] = std::move(done);
    const Bytes frame = encode(fence);
    send_(FrameType::fence, payload_of(frame));
}

Result<void> RelayedNetwork::on_fenced(std::string_view payload) {
    const auto fenced = decode<dtrun::Fenced>(payload);
    if (!fenced) return std::unexpected(fenced.error());
    if (fenced->generation != generation_) return {};
    if (!fenced->name.empty()) {
        const auto fence = fences_.find({fenced->name, fenced->round});
        if (fence != fences_.end()) end_fence(fence, *fenced);
    } else {
        while (!fences_.empty()) end_fence(fences_.begin(), *fenced);
    }
    return {};
}

void RelayedNetwork::end_fence(std::map<FenceKey, Fenced>::iterator fence,
                               const dtrun::Fenced& fenced) {
    const Fenced done = std::move(fence->second);
    fences_.erase(fence);
    if (!fenced.complete && fenced.why == kTooManyBytes) too_much_();
    if (!fenced.complete) return done(fail(Errc::closed, "{}", fenced.why));
    met_ = true;
    std::vector<std::string> parts;
    for (const FenceEntry& entry : fenced.entries) parts.push_back(entry.bytes);
    done(std::move(parts));
}

void RelayedNetwork::mail(std::uint32_t node_rank, std::string bytes) {
    const std::string key = mailbox(node_rank);
    queries_.ask({.op = Op::push, .keys = {key}, .values = {bytes}}, [](const StoreReply& reply) {
        if (reply.status != Status::ok) log::warn("mail between the MPI servers was refused");
    });
}

void RelayedNetwork::open_mail(std::function<void(std::string)> take) {
    const bool open = static_cast<bool>(take_mail_);
    take_mail_ = std::move(take);
    if (!open) next_mail();
}

void RelayedNetwork::next_mail() {
    const std::string key = mailbox(node_rank_);
    queries_.ask({.op = Op::pop, .keys = {key}, .timeout_ms = kForeverMs},
                 [this](const StoreReply& reply) {
                     if (reply.status == Status::stale)
                         return;  // its generation is over, and nobody uses MPI
                     PackReader results(reply.results);
                     if (reply.status != Status::ok || results.array() != 1)
                         return log::warn("no more mail between the MPI servers");
                     std::string bytes(results.bytes());
                     const auto take = take_mail_;
                     next_mail();
                     take(std::move(bytes));
                 });
}

}  // namespace dtrun::mpi
