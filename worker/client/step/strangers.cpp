#include "worker/client/step/strangers.h"

namespace dtrun::embedded {

std::optional<PeerId> Strangers::excess() const {
    if (due_.size() < kMax) return std::nullopt;
    return due_.begin()->first;
}

std::optional<PeerId> Strangers::late(Moment at) const {
    if (next() > at) return std::nullopt;
    return due_.begin()->first;
}

}  // namespace dtrun::embedded
