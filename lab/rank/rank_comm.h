#pragma once

#include "base/result.h"
#include "lab/rank/operation.h"

#include <dtrun_collectives.h>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::lab::rank {

/// This process's place in the job.
class RankGroup {
public:
    /// Errc: timed_out, internal
    static Result<RankGroup> join();

    dtrun_worker* get() const { return worker_.get(); }
    std::uint32_t rank() const { return dtrun_rank(worker_.get()); }
    std::uint32_t size() const { return dtrun_world_size(worker_.get()); }
    std::string host() const { return dtrun_host_name(worker_.get()); }

    /// Gathers all ranks' texts, in order of rank.
    Result<std::vector<std::string>> gather(std::string_view name, const std::string& own) const;
    /// Makes an error on any rank an error on all, so that no rank waits for others.
    Result<void> agree(std::string_view name, const Result<void>& own) const;
    /// Tells the launcher how this rank ended.
    void leave(const std::string& failure);

private:
    struct Free {
        void operator()(dtrun_worker* worker) const { dtrun_finalize(worker, "ended early"); }
    };
    std::unique_ptr<dtrun_worker, Free> worker_;
};

/// How the ranks are spread.
struct Places {
    std::uint32_t hosts = 1;
    std::uint32_t slots_per_host = 1;  ///< of the host with most
    std::uint32_t local_rank = 0;      ///< of this rank on its host
};
Result<Places> find_places(const RankGroup& group);

/// A communicator of all ranks of the job.
class Comm {
public:
    /// \param device  arrays are in memory of the current GPU
    /// Errc: not_found (no such backend), timed_out, internal
    static Result<Comm> create(const RankGroup& group, const std::string& backend, bool device);

    dtrun_comm* get() const { return comm_.get(); }
    std::uint32_t rank() const { return dtrun_comm_rank(comm_.get()); }
    std::uint32_t size() const { return dtrun_comm_size(comm_.get()); }
    std::string backend() const { return dtrun_comm_backend(comm_.get()); }
    std::string why() const { return dtrun_comm_why(comm_.get()); }
    /// Lines "name: value" of what the backend tells.
    std::vector<std::pair<std::string, std::string>> facts() const;

private:
    struct Free {
        void operator()(dtrun_comm* comm) const { dtrun_comm_free(comm); }
    };
    std::unique_ptr<dtrun_comm, Free> comm_;
};

/// "name: value" lines as pairs; lines of another form are left out.
std::vector<std::pair<std::string, std::string>> parse_facts(std::string_view lines);

/// Turns the return code of a libdtrun_collectives function into a result.
Result<void> checked(int code);

}  // namespace dtrun::lab::rank
