#include "collectives/mpi/group.h"

#include "collectives/codec/reduce.h"
#include "collectives/mpi/messages.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

namespace dtrun::collectives {
namespace {

/// Most elements of one reduction; with 8 bytes each they fill a piece.
constexpr std::size_t kPieceElements = kPieceBytes / 8;

/// Limit for all ranks' parts together, so that no library counts beyond an int inside.
constexpr std::size_t kTotal =
    std::min(2 * kPieceBytes, std::size_t{std::numeric_limits<int>::max()});

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

void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (to != from && bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

MpiGroup::MpiGroup(Runtime& runtime, MPI_Comm comm, std::uint32_t rank, std::uint32_t size,
                   GroupFacts facts)
    : runtime_(runtime), comm_(comm), rank_(rank), size_(size), facts_(std::move(facts)) {
    runtime_.enter(&activity_);
}

MpiGroup::~MpiGroup() {
    runtime_.leave(&activity_);
    if (Runtime::ended()) return;
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

Result<void> MpiGroup::exchange(std::span<const Send> sends, std::span<const Receive> receives) {
    const auto messages = start(sends, receives);
    if (!messages) return std::unexpected(messages.error());
    return (*messages)->wait();
}

Result<std::unique_ptr<Pending>> MpiGroup::start(std::span<const Send> sends,
                                                 std::span<const Receive> receives) {
    return Messages::start(runtime_, activity_, comm_, expected_, sends, receives);
}

void MpiGroup::abort() noexcept {
    if (!Runtime::ended()) MPI_Abort(comm_, 1);
}

Result<void> MpiGroup::barrier() {
    return call("MPI_Barrier", [&] { return MPI_Barrier(comm_); });
}

// ---- reductions -----------------------------------------------------------------------------

Result<void> MpiGroup::allreduce(const void* in, void* out, std::size_t count, DType type,
                                 Reduce reduce) {
    const Runtime::Reduction by = runtime_.reduction(type, reduce);
    for (std::size_t first = 0; first < count; first += kPieceElements) {
        const std::size_t at = first * bytes_of(type);
        const void* const from = in == out ? MPI_IN_PLACE : static_cast<const std::byte*>(in) + at;
        auto done = call("MPI_Allreduce", [&] {
            return MPI_Allreduce(from, static_cast<std::byte*>(out) + at,
                                 static_cast<int>(std::min(kPieceElements, count - first)), by.type,
                                 by.op, comm_);
        });
        if (!done) return done;
    }
    if (reduce == Reduce::average) divide(out, count, type, size_);
    return {};
}

Result<void> MpiGroup::reduce(const void* in, void* out, std::size_t count, DType type,
                              Reduce reduce, std::uint32_t root) {
    const Runtime::Reduction by = runtime_.reduction(type, reduce);
    const bool in_place = rank_ == root && in == out;
    Memory apart;
    if (in_place && kReducesInPlaceAtFirstOnly && root != 0)
        if (apart = memory(std::min(kPieceElements, count) * bytes_of(type)); !apart)
            return no_memory();
    for (std::size_t first = 0; first < count; first += kPieceElements) {
        const std::size_t at = first * bytes_of(type);
        const std::size_t elements = std::min(kPieceElements, count - first);
        std::byte* const result = rank_ == root ? static_cast<std::byte*>(out) + at : nullptr;
        const void* const from =
            in_place && !apart ? MPI_IN_PLACE : static_cast<const std::byte*>(in) + at;
        auto done = call("MPI_Reduce", [&] {
            return MPI_Reduce(from, apart ? apart.get() : result, static_cast<int>(elements),
                              by.type, by.op, static_cast<int>(root), comm_);
        });
        if (!done) return done;
        if (apart) copy_bytes(result, apart.get(), elements * bytes_of(type));
    }
    if (rank_ == root && reduce == Reduce::average) divide(out, count, type, size_);
    return {};
}

Result<void> MpiGroup::reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                      Reduce reduce) {
    if (count == 0) return {};
    const auto* const parts = static_cast<const std::byte*>(in);
    const std::size_t bytes = count * bytes_of(type);
    if (count * size_ > kTotal) return reduce_scatter_by_roots(parts, out, count, type, reduce);
    const Runtime::Reduction by = runtime_.reduction(type, reduce);
    // With MPI_IN_PLACE the result would be in the first part.
    Memory apart;
    if (out == parts + rank_ * bytes)
        if (apart = memory(bytes); !apart) return no_memory();
    void* const to = apart ? apart.get() : out;
    auto done = call("MPI_Reduce_scatter_block", [&] {
        return MPI_Reduce_scatter_block(in, to, static_cast<int>(count), by.type, by.op, comm_);
    });
    if (!done) return done;
    copy_bytes(out, to, bytes);
    if (reduce == Reduce::average) divide(out, count, type, size_);
    return {};
}

Result<void> MpiGroup::reduce_scatter_by_roots(const std::byte* in, void* out, std::size_t count,
                                               DType type, Reduce reduce) {
    for (std::uint32_t root = 0; root < size_; ++root) {
        const std::byte* const part = in + root * count * bytes_of(type);
        auto done = this->reduce(part, rank_ == root ? out : nullptr, count, type, reduce, root);
        if (!done) return done;
    }
    return {};
}

// ---- data that are only moved -----------------------------------------------------------------

Result<void> MpiGroup::broadcast(void* data, std::size_t bytes, std::uint32_t root) {
    for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
        auto done = call("MPI_Bcast", [&] {
            return MPI_Bcast(static_cast<std::byte*>(data) + at,
                             static_cast<int>(std::min(kPieceBytes, bytes - at)), MPI_BYTE,
                             static_cast<int>(root), comm_);
        });
        if (!done) return done;
    }
    return {};
}

Result<void> MpiGroup::allgather(const void* in, void* out, std::size_t bytes) {
    if (bytes == 0) return {};
    auto* const parts = static_cast<std::byte*>(out);
    if (bytes * size_ > kTotal)
        return allgather_by_steps(in, parts, std::vector<std::size_t>(size_, bytes));
    const void* const from = in == parts + rank_ * bytes ? MPI_IN_PLACE : in;
    const int count = static_cast<int>(bytes);
    return call("MPI_Allgather",
                [&] { return MPI_Allgather(from, count, MPI_BYTE, out, count, MPI_BYTE, comm_); });
}

Result<void> MpiGroup::allgatherv(const void* in, void* out, std::span<const std::size_t> bytes) {
    std::size_t total = 0;
    for (const std::size_t part : bytes) {
        if (part > std::numeric_limits<std::size_t>::max() - total)
            return fail(Errc::invalid_input, "allgatherv: parts of more bytes than there can be");
        total += part;
    }
    if (total == 0) return {};
    auto* const parts = static_cast<std::byte*>(out);
    if (total > kTotal) return allgather_by_steps(in, parts, bytes);
    counts_.assign(bytes.begin(), bytes.end());
    offsets_.resize(size_);
    std::exclusive_scan(counts_.begin(), counts_.end(), offsets_.begin(), 0);
    const void* const from = in == parts + offsets_[rank_] ? MPI_IN_PLACE : in;
    return call("MPI_Allgatherv", [&] {
        return MPI_Allgatherv(from, counts_[rank_], MPI_BYTE, out, counts_.data(), offsets_.data(),
                              MPI_BYTE, comm_);
    });
}

/// Exchanges parts with each other rank in turn, so that every link carries each part once.
Result<void> MpiGroup::allgather_by_steps(const void* in, std::byte* out,
                                          std::span<const std::size_t> bytes) {
    std::vector<std::size_t> offsets(size_);
    std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), std::size_t{0});
    copy_bytes(out + offsets[rank_], in, bytes[rank_]);
    for (std::uint32_t step = 1; step < size_; ++step) {
        const std::uint32_t from = (rank_ + size_ - step) % size_;
        const Send send{(rank_ + step) % size_, in, bytes[rank_]};
        const Receive receive{from, out + offsets[from], bytes[from]};
        if (auto done = exchange({&send, 1}, {&receive, 1}); !done) return done;
    }
    return {};
}

Result<void> MpiGroup::gather(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    if (bytes == 0) return {};
    auto* const parts = static_cast<std::byte*>(out);
    if (bytes * size_ > kTotal) return gather_by_messages(in, parts, bytes, root);
    const void* const from = rank_ == root && in == parts + rank_ * bytes ? MPI_IN_PLACE : in;
    const int count = static_cast<int>(bytes);
    return call("MPI_Gather", [&] {
        return MPI_Gather(from, count, MPI_BYTE, out, count, MPI_BYTE, static_cast<int>(root),
                          comm_);
    });
}

Result<void> MpiGroup::gather_by_messages(const void* in, std::byte* out, std::size_t bytes,
                                          std::uint32_t root) {
    if (rank_ != root) {
        const Send send{root, in, bytes};
        return exchange({&send, 1}, {});
    }
    std::vector<Receive> receives;
    for (std::uint32_t from = 0; from < size_; ++from)
        if (from != root) receives.push_back({from, out + from * bytes, bytes});
    copy_bytes(out + root * bytes, in, bytes);
    return exchange({}, receives);
}

Result<void> MpiGroup::scatter(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    if (bytes == 0) return {};
    const auto* const parts = static_cast<const std::byte*>(in);
    if (bytes * size_ > kTotal) return scatter_by_messages(parts, out, bytes, root);
    void* const to = rank_ == root && out == parts + rank_ * bytes ? MPI_IN_PLACE : out;
    const int count = static_cast<int>(bytes);
    return call("MPI_Scatter", [&] {
        return MPI_Scatter(in, count, MPI_BYTE, to, count, MPI_BYTE, static_cast<int>(root), comm_);
    });
}

Result<void> MpiGroup::scatter_by_messages(const std::byte* in, void* out, std::size_t bytes,
                                           std::uint32_t root) {
    if (rank_ != root) {
        const Receive receive{root, out, bytes};
        return exchange({}, {&receive, 1});
    }
    std::vector<Send> sends;
    for (std::uint32_t to = 0; to < size_; ++to)
        if (to != root) sends.push_back({to, in + to * bytes, bytes});
    copy_bytes(out, in + root * bytes, bytes);
    return exchange(sends, {});
}

Result<void> MpiGroup::alltoall(const void* in, void* out, std::size_t bytes) {
    if (bytes == 0) return {};
    if (bytes * size_ > kTotal)
        return alltoall_by_steps(static_cast<const std::byte*>(in), static_cast<std::byte*>(out),
                                 bytes);
    const int count = static_cast<int>(bytes);
    return call("MPI_Alltoall",
                [&] { return MPI_Alltoall(in, count, MPI_BYTE, out, count, MPI_BYTE, comm_); });
}

Result<void> MpiGroup::alltoall_by_steps(const std::byte* in, std::byte* out, std::size_t bytes) {
    copy_bytes(out + rank_ * bytes, in + rank_ * bytes, bytes);
    for (std::uint32_t step = 1; step < size_; ++step) {
        const std::uint32_t to = (rank_ + step) % size_;
        const std::uint32_t from = (rank_ + size_ - step) % size_;
        const Send send{to, in + to * bytes, bytes};
        const Receive receive{from, out + from * bytes, bytes};
        if (auto done = exchange({&send, 1}, {&receive, 1}); !done) return done;
    }
    return {};
}

}  // namespace dtrun::collectives
