#include "worker/mpi/pmix_requests.h"

#include "base/log.h"
#include "base/milliseconds.h"
#include "worker/mpi/pmix_abi.h"

#include <algorithm>

namespace dtrun::mpi {
namespace {

/// Open MPI reports a failed fence at length. When a rank has ended, the head normally ends the job
/// with the true cause before that.
constexpr std::chrono::seconds kHoldTime{3};

constexpr std::string_view kWaitsFor =
    "the other ranks in MPI_Init, MPI_Finalize or another fence of PMIx";

std::string_view fence_name(PmixCollective collective) {
    switch (collective) {
        case PmixCollective::connect:
            return "dtrun/pmix/connect";
        case PmixCollective::disconnect:
            return "dtrun/pmix/disconnect";
        case PmixCollective::fence:
            break;
    }
    return "dtrun/pmix";
}

}  // namespace

PmixRequests::PmixRequests(asio::any_io_executor executor, MpiNetwork& network,
                           MpiObserver& observer, MpiWorld world, Process& process)
    : network_(network),
      observer_(observer),
      world_(std::move(world)),
      process_(process),
      collectives_(
          world_,
          [this](std::uint32_t node, Bytes frame) { network_.mail(node, std::move(frame)); },
          [this](std::uint64_t id, bool lost, std::string bytes) {
              fence_ended(id, lost, std::move(bytes));
          }),
      names_(network.store(), [this](Bytes frame) { process_.to_process(std::move(frame)); }),
      not_connected_(world_.ranks.begin(), world_.ranks.end()),
      timer_(executor) {}

template <class Message>
Result<void> PmixRequests::decode_to(const PmixFrame& frame) {
    auto message = pmix_decode<Message>(frame.payload);
    if (!message) return std::unexpected(message.error());
    on(*message);
    return {};
}

Result<void> PmixRequests::take(const PmixFrame& frame) {
    switch (frame.kind) {
        case PmixKind::connected:
            return decode_to<PmixConnected>(frame);
        case PmixKind::finalized:
            return decode_to<PmixFinalized>(frame);
        case PmixKind::aborted:
            return decode_to<PmixAborted>(frame);
        case PmixKind::fence:
            return decode_to<PmixFence>(frame);
        case PmixKind::modex:
            return decode_to<PmixModex>(frame);
        case PmixKind::data:
            return decode_to<PmixData>(frame);
        case PmixKind::publish:
            return decode_to<PmixPublish>(frame);
        case PmixKind::lookup:
            return decode_to<PmixLookup>(frame);
        case PmixKind::unpublish:
            return decode_to<PmixUnpublish>(frame);
        case PmixKind::spawn:
            return decode_to<PmixSpawn>(frame);
        default:
            return fail(Errc::invalid_input, "dtrun-pmix sent a message of kind {}",
                        static_cast<int>(frame.kind));
    }
}

void PmixRequests::on(const PmixConnected& message) {
    connected_[message.rank] = Clock::now();
    not_connected_.erase(message.rank);
    observer_.mpi_initialized(Rank{message.rank});
}

void PmixRequests::on(const PmixFinalized& message) {
    connected_.erase(message.rank);
    observer_.mpi_finalized(Rank{message.rank});
    answer(message.id, pmix::kSuccess, {});
}

void PmixRequests::on(const PmixAborted& message) {
    connected_.erase(message.rank);
    observer_.mpi_aborted(Rank{message.rank}, message.status);
    // With an answer the rank would end at once, and peers that notice would call MPI_Abort too: the
    // head has to hear of this rank before.
    hold(message.id);
}

void PmixRequests::on(PmixFence& message) {
    Wait& wait = fences_[message.id];
    wait.since = Clock::now();
    wait.of_all = message.ranks.empty();
    std::ranges::copy_if(world_.ranks, std::back_inserter(wait.ranks), [&](std::uint32_t rank) {
        return message.ranks.empty() || std::ranges::binary_search(message.ranks, rank);
    });
    if (!message.ranks.empty()) return collectives_.come(std::move(message));
    // This host does not enter the fence: the other hosts, too, wait until the head knows of the
    // rank's end.
    if (message.lost) return fence_ended(message.id, true, {});
    network_.fence(fence_name(message.collective), std::move(message.bytes),
                   [this, alive = std::weak_ptr(alive_), id = message.id](auto fenced) {
                       if (alive.expired()) return;
                       std::string all;
                       if (fenced)
                           for (const std::string& part : *fenced) all += part;
                       fence_ended(id, !fenced.has_value(), std::move(all));
                   });
}

void PmixRequests::fence_ended(std::uint64_t id, bool lost, std::string bytes) {
    if (lost) return hold(id);
    fences_.erase(id);
    answer(id, pmix::kSuccess, std::move(bytes));
}

void PmixRequests::hold(std::uint64_t id) {
    held_.push_back({after(kHoldTime), id});
    if (held_.size() == 1) look();
}

void PmixRequests::look() {
    timer_.expires_at(held_.front().until);
    timer_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
        if (error || alive.expired()) return;
        while (!held_.empty() && held_.front().until <= Clock::now()) {
            const std::uint64_t id = held_.front().id;
            held_.pop_front();
            fences_.erase(id);
            answer(id, pmix::kErrorLostConnection, {});
        }
        if (!held_.empty()) look();
    });
}

void PmixRequests::on(const PmixModex& message) {
    if (message.rank >= world_.world_size) return answer(message.id, pmix::kErrorNotFound, {});
    const std::uint32_t node = world_.node_of_rank[message.rank];
    if (node == world_.node_rank) return answer(message.id, pmix::kErrorNotFound, {});
    network_.mail(node, pmix_encode(PmixAsk{message.id, world_.node_rank, message.rank}));
}

void PmixRequests::take_mail(std::string_view bytes) {
    PmixFrames frames;
    frames.feed(bytes);
    const auto frame = frames.next();
    if (!frame || !*frame) return log::warn("PMIx: another host's mail makes no sense");
    switch ((*frame)->kind) {
        case PmixKind::part:
            if (auto part = pmix_decode<PmixPart>((*frame)->payload))
                collectives_.take(std::move(*part));
            break;
        case PmixKind::whole:
            if (auto whole = pmix_decode<PmixWhole>((*frame)->payload))
                collectives_.take(std::move(*whole));
            break;
        case PmixKind::ask:
            if (const auto ask = pmix_decode<PmixAsk>((*frame)->payload)) asked(*ask);
            break;
        case PmixKind::told:
            if (auto told = pmix_decode<PmixTold>((*frame)->payload))
                answer(told->id, told->status, std::move(told->bytes));
            break;
        default:
            log::warn("PMIx: mail of kind {}", static_cast<int>((*frame)->kind));
    }
}

void PmixRequests::asked(const PmixAsk& ask) {
    if (ask.node_rank >= world_.node_names.size() || ask.node_rank == world_.node_rank) return;
    const Want want{ask.node_rank, ask.id};
    const bool here = std::ranges::find(world_.ranks, ask.rank) != world_.ranks.end();
    if (!here) return tell(want, pmix::kErrorNotFound, {});
    if (!process_.need_process()) return tell(want, pmix::kErrorUnreachable, {});
    wants_.emplace(++last_want_, want);
    process_.to_process(pmix_encode(PmixWant{last_want_, ask.rank}));
}

void PmixRequests::on(const PmixSpawn& message) {
    if (std::exchange(told_of_spawn_, true)) return;
    observer_.mpi_spawn_refused(Rank{message.rank});
}

void PmixRequests::on(const PmixData& message) {
    const auto want = wants_.extract(message.id);
    if (!want.empty()) tell(want.mapped(), message.status, message.bytes);
}

void PmixRequests::tell(const Want& want, std::int32_t status, std::string bytes) {
    network_.mail(want.node_rank, pmix_encode(PmixTold{want.id, status, std::move(bytes)}));
}

void PmixRequests::process_gone() {
    connected_.clear();
    fences_.clear();
    held_.clear();
    timer_.cancel();
    for (const auto& [id, want] : std::exchange(wants_, {}))
        tell(want, pmix::kErrorUnreachable, {});
}

void PmixRequests::answer(std::uint64_t id, std::int32_t status, std::string bytes) {
    process_.to_process(pmix_encode(PmixAnswer{id, status, std::move(bytes)}));
}

std::vector<RankWait> PmixRequests::waits(Deadline now) const {
    std::map<std::uint32_t, Deadline> since;
    // libpmix tells of a fence when all ranks of the host are in it. As long as one of them has not
    // begun, the others can only be waiting for it.
    if (!not_connected_.empty()) since = connected_;
    std::set<std::uint32_t> fenced;  // with all ranks of the job
    for (const auto& [id, wait] : fences_)
        for (const std::uint32_t rank : wait.ranks) {
            since[rank] = wait.since;
            if (wait.of_all) fenced.insert(rank);
        }
    std::vector<RankWait> waits;
    for (const auto& [rank, begin] : since) {
        RankWait& wait = waits.emplace_back();
        wait.rank = Rank{rank};
        wait.what = kWaitsFor;
        wait.starting = true;
        wait.mpi = fenced.contains(rank) ? MpiWait::pmix : MpiWait::pmix_client;
        wait.waited_ms = to_ms(now - begin);
    }
    return waits;
}

}  // namespace dtrun::mpi
