#include "collectives/backends/mpi/group.h"

#include "collectives/backends/mpi/messages.h"
#include "collectives/codec/reduce.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

namespace dtrun::collectives {
namespace {

/// Most elements of one reduction; with 8 bytes each they fill a chunk.
constexpr std::size_t kChunkElements = kChunkBytes / 8;

/// Limit for all ranks' parts together, so that no library counts beyond an int inside.
constexpr std::size_t kTotal =
    std::min(2 * kChunkBytes, std::size_t{std::numeric_limits<int>::max()});

/// MPICH 4.0 reads MPI_IN_PLACE as an address if the root is not the first rank of its host.
constexpr bool kReducesInPlaceAtFirstOnly = kMpiLibrary == MpiLibrary::mpich;

struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

Memory memory(std::size_t bytes) {
    return Memory(static_cast<std::byte*>(std::malloc(std::max<std::size_t>(bytes, 1))));
}

std::unexpected<Error> no_memory() {
    return fail(Errc::internal, "no memory for a result that lies in place");
}

}  // namespace

MpiGroup::MpiGroup(MpiRuntime& runtime, MPI_Comm comm, std::uint32_t rank, std::uint32_t size,
                   GroupFacts facts)
    : GroupOfOperations(rank, size), runtime_(runtime), comm_(comm), facts_(std::move(facts)) {
    runtime_.enter(&activity_);
}

MpiGroup::~MpiGroup() {
    runtime_.leave(&activity_);
    if (MpiRuntime::ended()) return;
    const auto turn = runtime_.turn();
    MPI_Comm_free(&comm_);
}

template <class Function>
Result<void> MpiGroup::call(const char* name, Function function) {
    const auto turn = runtime_.turn();
    activity_.add(1);
    const int code = function();
    activity_.add(-1);
    if (code != MPI_SUCCESS) return mpi_failed(code, name);
    return {};
}

Result<std::unique_ptr<Pending>> MpiGroup::start(std::span<const Send> sends,
                                                 std::span<const Receive> receives) {
    return MpiMessages::start(runtime_, activity_, comm_, expected_, sends, receives);
}

void MpiGroup::abort() noexcept {
    if (!MpiRuntime::ended()) MPI_Abort(comm_, 1);
}

/// Whether all ranks' parts of so many elements or bytes can be counted; else messages take their place.
bool MpiGroup::fits(std::size_t count) const {
    return count * size_ <= kTotal;
}

Result<void> MpiGroup::barrier(const Operation&) {
    return call("MPI_Barrier", [&] { return MPI_Barrier(comm_); });
}

// ---- reductions -----------------------------------------------------------------------------

Result<void> MpiGroup::allreduce(const Operation& what) {
    const MpiRuntime::Reduction by = runtime_.reduction(what.type, what.reduce);
    for (std::size_t first = 0; first < what.count; first += kChunkElements) {
        const std::size_t at = first * bytes_of(what.type);
        const void* const from = what.in == what.out ? MPI_IN_PLACE : at_byte(what.in, at);
        auto done = call("MPI_Allreduce", [&] {
            return MPI_Allreduce(from, at_byte(what.out, at),
                                 static_cast<int>(std::min(kChunkElements, what.count - first)),
                                 by.type, by.op, comm_);
        });
        if (!done) return done;
    }
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

Result<void> MpiGroup::reduce(const Operation& what) {
    const MpiRuntime::Reduction by = runtime_.reduction(what.type, what.reduce);
    const bool is_root = rank_ == what.root;
    const bool in_place = is_root && what.in == what.out;
    const std::size_t element = bytes_of(what.type);
    Memory apart;
    if (in_place && kReducesInPlaceAtFirstOnly && what.root != 0)
        if (apart = memory(std::min(kChunkElements, what.count) * element); !apart)
            return no_memory();
    for (std::size_t first = 0; first < what.count; first += kChunkElements) {
        const std::size_t at = first * element;
        const std::size_t elements = std::min(kChunkElements, what.count - first);
        std::byte* const result = is_root ? at_byte(what.out, at) : nullptr;
        const void* const from = in_place && !apart ? MPI_IN_PLACE : at_byte(what.in, at);
        auto done = call("MPI_Reduce", [&] {
            return MPI_Reduce(from, apart ? apart.get() : result, static_cast<int>(elements),
                              by.type, by.op, static_cast<int>(what.root), comm_);
        });
        if (!done) return done;
        if (apart) copy_bytes(result, apart.get(), elements * element);
    }
    if (is_root && what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

Result<void> MpiGroup::reduce_scatter(const Operation& what) {
    if (what.count == 0) return {};
    const std::size_t bytes = what.bytes();
    if (!fits(what.count)) {
        for (std::uint32_t root = 0; root < size_; ++root) {
            auto done = reduce(op::reduce(at_byte(what.in, root * bytes), what.out, what.count,
                                          what.type, what.reduce, root));
            if (!done) return done;
        }
        return {};
    }
    const MpiRuntime::Reduction by = runtime_.reduction(what.type, what.reduce);
    // With MPI_IN_PLACE the result would be in the first part.
    Memory apart;
    if (what.out == at_byte(what.in, rank_ * bytes))
        if (apart = memory(bytes); !apart) return no_memory();
    void* const to = apart ? apart.get() : what.out;
    auto done = call("MPI_Reduce_scatter_block", [&] {
        return MPI_Reduce_scatter_block(what.in, to, static_cast<int>(what.count), by.type, by.op,
                                        comm_);
    });
    if (!done) return done;
    copy_bytes(what.out, to, bytes);
    if (what.reduce == Reduce::average) divide(what.out, what.count, what.type, size_);
    return {};
}

// ---- data that are only moved -----------------------------------------------------------------

Result<void> MpiGroup::broadcast(const Operation& what) {
    const std::size_t bytes = what.bytes();
    for (std::size_t at = 0; at < bytes; at += kChunkBytes) {
        auto done = call("MPI_Bcast", [&] {
            return MPI_Bcast(at_byte(what.out, at),
                             static_cast<int>(std::min(kChunkBytes, bytes - at)), MPI_BYTE,
                             static_cast<int>(what.root), comm_);
        });
        if (!done) return done;
    }
    return {};
}

Result<void> MpiGroup::allgather(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    if (!fits(bytes)) return by_messages(what);
    const void* const from = what.in == at_byte(what.out, rank_ * bytes) ? MPI_IN_PLACE : what.in;
    const int count = static_cast<int>(bytes);
    return call("MPI_Allgather", [&] {
        return MPI_Allgather(from, count, MPI_BYTE, what.out, count, MPI_BYTE, comm_);
    });
}

Result<void> MpiGroup::allgatherv(const Operation& what) {
    std::size_t total = 0;
    for (const std::size_t part : what.counts) {
        if (part > std::numeric_limits<std::size_t>::max() - total)
            return fail(Errc::invalid_input, "allgatherv: parts of more bytes than there can be");
        total += part;
    }
    if (total == 0) return {};
    if (total > kTotal) return by_messages(what);
    counts_.assign(what.counts.begin(), what.counts.end());
    offsets_.resize(size_);
    std::exclusive_scan(counts_.begin(), counts_.end(), offsets_.begin(), 0);
    const auto own = static_cast<std::size_t>(offsets_[rank_]);
    const void* const from = what.in == at_byte(what.out, own) ? MPI_IN_PLACE : what.in;
    return call("MPI_Allgatherv", [&] {
        return MPI_Allgatherv(from, counts_[rank_], MPI_BYTE, what.out, counts_.data(),
                              offsets_.data(), MPI_BYTE, comm_);
    });
}

Result<void> MpiGroup::gather(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    if (!fits(bytes)) return by_messages(what);
    const bool in_place = rank_ == what.root && what.in == at_byte(what.out, rank_ * bytes);
    const int count = static_cast<int>(bytes);
    return call("MPI_Gather", [&] {
        return MPI_Gather(in_place ? MPI_IN_PLACE : what.in, count, MPI_BYTE, what.out, count,
                          MPI_BYTE, static_cast<int>(what.root), comm_);
    });
}

Result<void> MpiGroup::scatter(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    if (!fits(bytes)) return by_messages(what);
    const bool in_place = rank_ == what.root && what.out == at_byte(what.in, rank_ * bytes);
    const int count = static_cast<int>(bytes);
    return call("MPI_Scatter", [&] {
        return MPI_Scatter(what.in, count, MPI_BYTE, in_place ? MPI_IN_PLACE : what.out, count,
                           MPI_BYTE, static_cast<int>(what.root), comm_);
    });
}

Result<void> MpiGroup::alltoall(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    if (!fits(bytes)) return by_messages(what);
    const int count = static_cast<int>(bytes);
    return call("MPI_Alltoall", [&] {
        return MPI_Alltoall(what.in, count, MPI_BYTE, what.out, count, MPI_BYTE, comm_);
    });
}

}  // namespace dtrun::collectives
