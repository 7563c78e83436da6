#pragma once

#include "worker/mpi/pmix_messages.h"
#include "worker/mpi/world.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace dtrun::mpi {

/// Fences of PMIx in which only some ranks take part, as one of their hosts sees them. All hosts that
/// have such a rank mail their part to the first of them, which mails the whole back.
///
/// Thread: one.
class PmixCollectives {
public:
    using Mail = std::function<void(std::uint32_t node_rank, Bytes frame)>;
    /// \param lost  a rank that took part has ended instead
    using Done = std::function<void(std::uint64_t id, bool lost, std::string bytes)>;
    /// \param world  outlives this
    PmixCollectives(const MpiWorld& world, Mail mail, Done done);

    /// Our ranks have come. The `ranks` of it are not empty, sorted, and all in the world.
    void come(PmixFence fence);
    void take(PmixPart part);
    void take(PmixWhole whole);

private:
    using Ranks = std::vector<std::uint32_t>;
    using Who = std::pair<PmixCollective, Ranks>;
    using Key = std::pair<Who, std::uint64_t>;  ///< and the round
    struct Gathering {
        std::set<std::uint32_t> nodes;  ///< that have come
        std::string bytes;
        bool lost = false;
    };

    std::set<std::uint32_t> nodes_of(const Ranks& ranks) const;
    bool possible(const Ranks& ranks) const;

    const MpiWorld& world_;
    Mail mail_;
    Done done_;
    std::map<Who, std::uint64_t> rounds_;   ///< how often our ranks have come
    std::map<Key, std::uint64_t> waiting_;  ///< ids of our own
    std::map<Key, Gathering> gatherings_;   ///< of which we are the first host
};

}  // namespace dtrun::mpi
