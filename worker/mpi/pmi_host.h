#pragma once

#include "rendezvous/wire/modes.h"
#include "worker/mpi/network.h"
#include "worker/mpi/pmi_table.h"
#include "worker/mpi/world.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::mpi {

/// What a rank learns from a ring (PMIX_Ring, an extension of Slurm's).
struct PmiRing {
    std::uint32_t place = 0;  ///< in the ring
    std::string left;         ///< what the one before has for its right
    std::string right;        ///< what the one after has for its left
};

/// One rank's connection, as the others of its host see it.
class PmiMember {
public:
    virtual ~PmiMember() = default;
    virtual std::uint32_t rank() const = 0;
    virtual void barrier_passed() = 0;
    virtual void ring_closed(const PmiRing& ring) = 0;
    virtual void attribute_put(std::string_view key, std::string_view value) = 0;
    /// What it waits for does not come.
    virtual void give_up() = 0;
};

/// What the ranks of one host have of PMI together, in one generation: values, barriers, attributes
/// of the host. Pure: no sockets, no clock.
///
/// Thread: one. Lifetime: the network and the observer outlive it, it outlives the members.
class PmiHost {
public:
    /// \param fence_failed  called when ranks wait for what does not come any more; give_up() is to
    ///                      follow, when who knows the true reason had time to end them
    PmiHost(MpiWorld world, MpiMode mode, MpiNetwork& network, MpiObserver& observer,
            std::function<void()> fence_failed);

    const MpiWorld& world() const { return world_; }
    MpiMode mode() const { return mode_; }
    MpiObserver& observer() { return observer_; }
    stores::JobStore& store() { return network_.store(); }
    PmiTable& table() { return table_; }

    /// The name of the job's one table.
    const std::string& kvs_name() const { return kvs_name_; }
    /// "(vector,(first,nodes,ranks)…)"; empty, if no client could take one so long: it then compares
    /// the names of the hosts.
    const std::string& process_mapping() const { return process_mapping_; }
    /// Which ranks are where, as Intel MPI's get_ranks2hosts wants to be answered.
    std::string ranks_to_hosts() const;

    /// A rank is here, until leave().
    void join(PmiMember& member);
    void leave(PmiMember& member);

    /// Enters a barrier (or a ring), once for each: one fence of all hosts follows when all ranks
    /// of this host are in.
    void enter_barrier(PmiMember& member);
    void enter_ring(PmiMember& member, std::string left, std::string right);

    /// nullptr: not put so far.
    const std::string* attribute(std::string_view key) const;
    /// Errc: invalid_input
    Result<void> put_attribute(std::string_view key, std::string_view value);

    /// Whoever waits in a barrier, now or later, is told to give up.
    void give_up();

    /// Tells the user, once, that dtrun does not start further ranks.
    void spawn_refused(std::uint32_t rank);

private:
    /// All ranks of this host, on their way into a fence.
    struct Gathering {
        std::set<PmiMember*> in;
        bool under_way = false;  ///< the fence; leave() changes nothing of that
    };
    struct RingEnds {
        std::string left;
        std::string right;
    };

    bool enter(Gathering& gathering, PmiMember& member);
    void fence(Gathering& gathering, const char* name, std::string bytes,
               void (PmiHost::*passed)(const std::vector<std::string>& parts));
    void barrier_passed(const std::vector<std::string>& parts);
    void ring_closed(const std::vector<std::string>& parts);

    MpiWorld world_;
    MpiMode mode_;
    MpiNetwork& network_;
    MpiObserver& observer_;
    std::function<void()> fence_failed_;
    std::string kvs_name_;
    std::string process_mapping_;
    PmiTable table_;
    std::map<std::string, std::string, std::less<>> attributes_;  ///< of this host
    std::set<PmiMember*> members_;
    Gathering barrier_;
    Gathering ring_;
    std::map<std::uint32_t, RingEnds> ring_ends_;  ///< by rank; of this host
    bool given_up_ = false;
    bool spawn_refused_ = false;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< for fences that end after us
};

}  // namespace dtrun::mpi
