#include "worker/client/step/unauthenticated_peers.h"

namespace dtrun::embedded {

std::optional<PeerId> UnauthenticatedPeers::excess() const {
    if (due_.size() < kMax) return std::nullopt;
    return due_.begin()->first;
}

std::optional<PeerId> UnauthenticatedPeers::late(Moment at) const {
    if (next() > at) return std::nullopt;
    return due_.begin()->first;
}

}  // namespace dtrun::embedded
