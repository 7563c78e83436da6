#include "worker/client/step/unauthenticated_peers.h"

#include "base/ids.h"

#include <iterator>

namespace dtrun::embedded {

std::optional<PeerId> UnauthenticatedPeers::excess() const {
    if (due_.size() < kMax) return std::nullopt;
    const auto any = static_cast<std::ptrdiff_t>(random_id() % due_.size());
    return std::next(due_.begin(), any)->first;
}

std::optional<PeerId> UnauthenticatedPeers::late(Moment at) const {
    if (next() > at) return std::nullopt;
    return due_.begin()->first;
}

}  // namespace dtrun::embedded
