#include "worker/stores/elastic_desk.h"

#include "base/log.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::stores {
namespace {

constexpr std::string_view kPlace = "/rank_and_size/", kAddress = "/worker_addresses/";
/// The last scope in which hvd.init() meets; its DELETE is the last request of it.
constexpr std::string_view kLastScope = "/cross_";

std::string place_text(const RankSlot& rank, const Assign& world) {
    return fmt::format("{},{},{},{},{},{}", rank.rank, world.world_size, rank.local_rank,
                       world.ranks.size(), rank.cross_rank, rank.cross_size);
}

}  // namespace

void ElasticDesk::started(SlotIndex place, std::uint64_t generation) {
    Process& process = processes_[place] = {};
    process.generation = generation;
}

std::optional<HttpRequest> ElasticDesk::ask(SlotIndex place, Asker asker, HttpRequest request) {
    const auto found = processes_.find(place);
    if (found == processes_.end()) {  // bytes of a process that has ended
        reply_(asker, http_answer(403, "no process of this place runs\n"));
        return std::nullopt;
    }
    Process& process = found->second;
    if (request.target.starts_with(kAddress)) {
        put_address(place, process, asker, request.body);
        return std::nullopt;
    }
    if (request.target.starts_with(kPlace)) {
        process.asker = asker;
        tell_({place, DeskState::waiting});
        return std::nullopt;
    }
    if (process.generation > generation_) {
        process.asker = asker;
        process.first = std::move(request);
        tell_({place, DeskState::gated});
        return std::nullopt;
    }
    if (process.forming && request.method == "DELETE" && request.target.starts_with(kLastScope)) {
        process.forming = false;
        tell_({place, DeskState::settled});
    }
    return request;
}

void ElasticDesk::put_address(SlotIndex place, Process& process, Asker asker,
                              const std::string& body) {
    auto address = read_notice_address(body);
    if (!address) {
        log::warn("worker_addresses: {}", address.error().message);
        return reply_(asker, http_answer(400, address.error().message + "\n"));
    }
    process.notice = std::move(*address);
    reply_(asker, {200});
    tell_({place, DeskState::capable});
}

void ElasticDesk::forget(Asker asker) {
    for (auto& [place, process] : processes_)
        if (process.asker == asker) {
            process.asker.reset();
            process.first.reset();
        }
}

std::vector<std::pair<ElasticDesk::Asker, HttpRequest>> ElasticDesk::begin(const Assign& world) {
    generation_ = world.generation;
    std::vector<std::pair<Asker, HttpRequest>> go_on;
    for (const RankSlot& rank : world.ranks) {
        const auto found = processes_.find(rank.place);
        if (found == processes_.end()) continue;
        Process& process = found->second;
        process.generation = world.generation;
        process.forming = true;
        const auto asker = std::exchange(process.asker, std::nullopt);
        auto first = std::exchange(process.first, std::nullopt);
        if (asker && first)
            go_on.emplace_back(*asker, std::move(*first));
        else if (asker)
            reply_(*asker, http_answer(200, place_text(rank, world)));
    }
    return go_on;
}

std::optional<NoticeAddress> ElasticDesk::notice_for(SlotIndex place) const {
    const auto found = processes_.find(place);
    if (found == processes_.end() || found->second.asker) return std::nullopt;
    return found->second.notice;
}

}  // namespace dtrun::stores
