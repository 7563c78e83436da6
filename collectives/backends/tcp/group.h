#pragma once

#include "collectives/algorithms/by_messages.h"
#include "collectives/backends/tcp/address.h"
#include "collectives/backends/tcp/mesh.h"
#include "collectives/backends/tcp/messages.h"
#include "collectives/backends/tcp/stream.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace dtrun::collectives::over_tcp {

class TcpGroup;

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec);
Result<std::unique_ptr<TcpGroup>> connect_tcp(const GroupSpec& spec);

/// How elements are combined.
struct Elements {
    DType type;
    Reduce reduce;

    std::size_t bytes(std::size_t count) const { return count * bytes_of(type); }
    std::size_t count(std::size_t bytes) const { return bytes / bytes_of(type); }
};

/// A communicator over TCP connections between its ranks. The calling thread writes to the sockets and reads
/// from them itself; there is no other thread.
class TcpGroup final : public GroupOfOperations {
public:
    /// \param listener  nullptr: one rank
    TcpGroup(const GroupSpec& spec, LocalAddress address, std::unique_ptr<PeerListener> listener);
    TcpGroup(const TcpGroup&) = delete;
    TcpGroup& operator=(const TcpGroup&) = delete;

    /// Connects to the neighbours.
    Result<void> open();

    GroupFacts facts() const override;
    Result<void> run(const Operation& what) override;
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override;
    void abort() noexcept override;
    std::optional<std::uint32_t> lost() const override { return lost_; }
    void expect(std::uint64_t call) override { expected_ = call; }

private:
    Error failed(const Error& error);
    void shut() noexcept;
    std::optional<std::uint32_t> who_was_lost();

    /// The tag of the present operation's messages. \param part  0 or 1, where two of its flows
    /// overlap
    std::uint32_t tag(std::size_t bytes, std::uint32_t part = 0) const;
    /// The rank at a distance in the ring, to either side.
    std::uint32_t at(std::int64_t distance) const;
    /// Distance from the root to this rank, up the ring.
    std::uint32_t distance_from(std::uint32_t root) const { return (rank_ + size_ - root) % size_; }
    /// Memory for as long as the operation.
    std::byte* scratch(std::size_t bytes);

    std::size_t chunks_of(std::size_t bytes) const {
        return (bytes + chunk_bytes_ - 1) / chunk_bytes_;
    }

    // group.cpp: whole messages; there are none of 0 bytes
    Result<void> send(std::uint32_t to, const void* data, std::size_t bytes);
    Result<void> receive(std::uint32_t from, void* data, std::size_t bytes);
    Result<void> exchange(std::uint32_t to, const void* out, std::size_t out_bytes,
                          std::uint32_t from, void* in, std::size_t in_bytes);
    /// Sends to a peer that calls receive_into().
    Result<void> send_to_combine(std::uint32_t to, const void* data, std::size_t bytes);
    /// Sets result = mine op received data.
    Result<void> receive_into(std::uint32_t from, const void* mine, void* result, std::size_t count,
                              Elements elements);
    /// Does send_to_combine() and receive_into() at once.
    Result<void> exchange_into(std::uint32_t peer, const void* out, std::size_t out_count,
                               const void* mine, void* result, std::size_t count,
                               Elements elements);

    // allreduce.cpp
    Result<void> allreduce(const Operation& what) override;
    Result<void> reduce_scatter(const Operation& what) override;
    Result<void> allreduce_doubling(void* data, std::size_t count, Elements elements);
    Result<void> allreduce_halving(const void* in, void* out, std::size_t count, Elements elements);
    Result<void> allreduce_ring(const void* in, void* out, std::size_t count, Elements elements);
    Result<void> reduce_scatter_ring(const void* in, void* out, std::size_t count,
                                     Elements elements);
    Result<void> fold(void* data, std::size_t count, Elements elements, std::uint32_t power);
    Result<void> unfold(void* data, std::size_t bytes, std::uint32_t power);

    // rooted.cpp
    Result<void> reduce(const Operation& what) override;
    Result<void> broadcast(const Operation& what) override;
    Result<void> gather(const Operation& what) override;
    Result<void> scatter(const Operation& what) override;
    Result<void> reduce_chain(const void* in, void* out, std::size_t count, Elements elements,
                              std::uint32_t root);
    Result<void> reduce_tree(const void* in, void* out, std::size_t count, Elements elements,
                             std::uint32_t root);
    Result<void> broadcast_chain(void* data, std::size_t bytes, std::uint32_t root);
    Result<void> broadcast_tree(void* data, std::size_t bytes, std::uint32_t root);
    Result<void> gather_tree(const void* in, void* out, std::size_t bytes, std::uint32_t root);
    Result<void> scatter_tree(const void* in, void* out, std::size_t bytes, std::uint32_t root);
    bool chain_is_faster(std::size_t bytes) const;

    // exchange.cpp
    Result<void> allgather(const Operation& what) override;
    Result<void> allgatherv(const Operation& what) override { return allgather(what); }
    Result<void> alltoall(const Operation& what) override;
    Result<void> barrier(const Operation& what) override;
    Result<void> allgather_ring(const void* in, std::byte* out, std::span<const std::size_t> bytes);
    Result<void> allgather_bruck(const void* in, std::byte* out,
                                 std::span<const std::size_t> bytes);
    Result<void> alltoall_pairs(const std::byte* in, std::byte* out, std::size_t bytes);
    Result<void> alltoall_bruck(const std::byte* in, std::byte* out, std::size_t bytes);

    GroupSpec spec_;
    LocalAddress address_;
    AddressBook address_book_;
    AbortSignal abort_signal_;
    std::unique_ptr<PeerListener> peers_;
    std::unique_ptr<Mesh> streams_;
    std::unique_ptr<Mesh> message_mesh_;
    std::unique_ptr<TcpMessages> messages_;
    std::optional<Error> error_;  ///< the first one; later operations return it
    std::optional<std::uint32_t> lost_;
    std::uint64_t expected_ = 0;
    std::uint64_t sequence_ = 0;
    std::uint64_t call_ = 0;
    std::vector<std::byte> scratch_;
    std::size_t chunk_bytes_ = kChunkBytesMin;  ///< the same on all ranks
    std::vector<std::byte> chunk_;              ///< what has come and is to be combined
};

}  // namespace dtrun::collectives::over_tcp
