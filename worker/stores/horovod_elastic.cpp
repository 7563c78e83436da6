#include "worker/stores/horovod_elastic.h"

#include "base/log.h"

#include <fmt/format.h>

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

std::optional<HttpRequest> HorovodElastic::ask(SlotIndex place, Asker asker, HttpRequest request) {
    if (!rejoins_.runs(place)) {  // bytes of a process that has ended
        reply_(asker, http_answer(403, "no process of this place runs\n"));
        return std::nullopt;
    }
    if (request.target.starts_with(kAddress)) {
        put_address(place, asker, request.body);
        return std::nullopt;
    }
    if (request.target.starts_with(kPlace)) {
        tickets_[asker] =
            rejoins_.ask(place, [this, asker](const RankSlot& rank, const Assign& world) {
                tickets_.erase(asker);
                reply_(asker, http_answer(200, place_text(rank, world)));
            });
        return std::nullopt;
    }
    if (rejoins_.is_early(place)) {
        tickets_[asker] = rejoins_.hold(
            place, [this, asker, first = std::move(request)](const RankSlot&, const Assign&) {
                tickets_.erase(asker);
                pass_(asker, first);
            });
        return std::nullopt;
    }
    if (request.method == "DELETE" && request.target.starts_with(kLastScope))
        rejoins_.rendezvoused(place);
    return request;
}

void HorovodElastic::put_address(SlotIndex place, Asker asker, const std::string& body) {
    auto address = read_notice_address(body);
    if (!address) {
        log::warn("worker_addresses: {}", address.error().message);
        return reply_(asker, http_answer(400, address.error().message + "\n"));
    }
    notices_[place] = std::move(*address);
    reply_(asker, {200});
    rejoins_.supports_rejoin(place);
}

void HorovodElastic::forget(Asker asker) {
    const auto ticket = tickets_.extract(asker);
    if (!ticket.empty()) rejoins_.forget(ticket.mapped());
}

std::optional<NoticeAddress> HorovodElastic::notice_for(SlotIndex place) const {
    const auto found = notices_.find(place);
    if (found == notices_.end() || rejoins_.waits(place)) return std::nullopt;
    return found->second;
}

}  // namespace dtrun::stores
