#pragma once

#include "base/fd.h"
#include "base/numbered.h"
#include "worker/ranks/rank_service.h"

#include <cstdint>
#include <map>
#include <string>

namespace dtrun::agent {

/// Where ranks may leave the exception that ended them, as torch's @record does in the file that
/// TORCHELASTIC_ERROR_FILE names (torch/distributed/elastic/multiprocessing/errors). They are in our
/// memory, under names in /proc, so nothing of them outlives us.
class ErrorFiles final : public ranks::RankService {
public:
    static constexpr std::size_t kBytesMax = 1u << 20;  ///< of which somebody hears

    Result<void> offer(const Assign&, const RankSlot& slot, ranks::RankOffer& offer) override {
        offer.error_file = open_file(slot.place);
        return {};
    }
    void ended(Exited& exited) override { exited.traceback = take(exited.place); }

    /// A new file for a rank. \return its path; empty if there can be none
    std::string open_file(SlotIndex place);
    /// What it has left, and no more after that.
    std::string take(SlotIndex place);

private:
    std::map<SlotIndex, Fd> files_;
};

}  // namespace dtrun::agent
