#pragma once

#include "collectives/backends/native/background.h"
#include "collectives/backends/tcp/group.h"
#include "collectives/group.h"
#include "collectives/host/host_topology.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::collectives::native {

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec);

/// The backend `dtrun`: ranks of a host exchange data in memory that they share, hosts over TCP.
///
/// What all hosts need is added up on each host first, then between hosts, and then handed out on each; so every
/// byte leaves a host once, however many ranks it has. Each rail does that for its chunk (see Topology).
class NativeGroup final : public Group {
public:
    NativeGroup(const GroupSpec& spec, std::unique_ptr<over_tcp::TcpGroup> all);

    Result<void> set_topology(const HostTopology& host_topology) override;

    GroupFacts facts() const override;
    Result<void> run(const Operation& what) override;
    bool fuses() const override { return way_ != Way::tcp; }
    Result<void> allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce) override;
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override;
    Error failed_in_memory(const Error& error) override { return failed(error); }
    void abort() noexcept override;
    std::optional<std::uint32_t> lost() const override { return lost_; }
    void expect(std::uint64_t call) override { expected_ = call; }

private:
    /// How an operation gets where it has to go.
    enum class Way { memory, tcp, both };

    void begin(std::uint64_t operation);
    Result<void> in_memory(const Operation& what);
    Result<void> by_levels(const Operation& what);
    Error failed(const Error& error);
    void end_parts() noexcept;
    std::optional<std::uint32_t> who_was_lost() const;

    // two_level.cpp
    Result<void> allreduce_small(const Operation& what);
    Result<void> allreduce_large(const Operation& what);
    Result<void> allreduce_arrays(std::span<const Array> arrays, DType type, Reduce reduce);
    /// What goes through the levels at a time.
    struct Turn {
        std::vector<Chunk> chunks{};  ///< one for each rail
        Chunk own{};                  ///< of this rank's rail
        std::byte* sums = nullptr;    ///< what it adds up
    };
    /// Where the elements of an allreduce come from, are added up, and go to.
    struct Places {
        HostGroup::Fill fill;
        HostGroup::Take take;
        std::function<std::byte*(Chunk chunk, std::size_t turn)> room;
    };
    Result<void> allreduce_elements(std::size_t count, DType type, Reduce reduce,
                                    const Places& places);
    Result<void> allreduce_turns(std::size_t count, DType type, Reduce reduce,
                                 const Places& places);
    std::size_t turn_elements(std::size_t count, std::size_t element) const;
    Turn cut(std::size_t at, std::size_t count) const;
    Result<void> sum_on_host(const Turn& turn, DType type, Reduce reduce,
                             const HostGroup::Fill& fill);
    Result<void> hand_out(const Turn& turn, DType type, Reduce reduce, const HostGroup::Take& take);
    void settle();
    Result<void> reduce_scatter_levels(const Operation& what);
    Result<void> broadcast_levels(const Operation& what);
    Result<void> allgather_levels(const Operation& what);
    Result<void> barrier_levels();
    bool on_rail() const { return rail_ != nullptr; }

    GroupSpec spec_;
    std::unique_ptr<over_tcp::TcpGroup> all_;  ///< all ranks
    std::unique_ptr<over_tcp::TcpGroup>
        rail_;  ///< one rank of each host, by host; none for spare ranks
    Topology topology_;
    HostGroup* host_ = nullptr;
    std::string why_apart_;  ///< of HostTopology
    Way way_ = Way::tcp;
    std::uint64_t expected_ = 0;
    std::uint64_t sequence_ = 0;
    std::atomic<bool> aborted_ = false;
    std::optional<Error> error_;  ///< the first one; later operations return it
    std::optional<std::uint32_t> lost_;
    std::vector<std::byte> scratch_;
    Background background_;  ///< what the rail adds up while the host works
};

}  // namespace dtrun::collectives::native
