#include "worker/ranks/rank_service.h"

namespace dtrun::ranks {

asio::awaitable<Result<void>> RankService::prepare(const std::string&) {
    co_return Result<void>{};
}

asio::awaitable<void> RankService::ready() {
    co_return;
}

Result<void> RankService::offer(const Assign&, const RankSlot&, RankOffer&) {
    return {};
}

asio::awaitable<void> RankService::join() {
    co_return;
}

}  // namespace dtrun::ranks
