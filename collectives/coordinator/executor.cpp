#include "collectives/coordinator/executor.h"

#include "collectives/coordinator/scale.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace dtrun::collectives {
namespace {

Errc errc_of(int code) {
    switch (code) {
        case DTRUN_INVALID:
            return Errc::invalid_input;
        case DTRUN_TIMED_OUT:
            return Errc::timed_out;
        case DTRUN_PEER_LOST:
            return Errc::closed;
        case DTRUN_CANCELLED:
            return Errc::cancelled;
        default:
            return Errc::internal;
    }
}

Result<void> checked(int code) {
    if (code == DTRUN_OK) return {};
    return comm_error(code);
}

/// Of reduce-scatter: the first ranks get one row more if rows do not divide.
std::int64_t rows_of(std::int64_t rows, std::uint32_t rank, std::uint32_t size) {
    return rows / size + (rank < static_cast<std::uint32_t>(rows % size) ? 1 : 0);
}

}  // namespace

std::unexpected<Error> comm_error(int code) {
    return fail(errc_of(code), "{}", dtrun_comm_error_text());
}

OwnedMemory allocate(std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    if (bytes == 0) return nullptr;
    void* const memory = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
    if (memory == nullptr) throw std::bad_alloc();
    return OwnedMemory(memory);
}

Executor::Executor(dtrun_comm* comm)
    : comm_(comm), rank_(dtrun_comm_rank(comm)), size_(dtrun_comm_size(comm)) {}

Result<void> Executor::reduce(std::span<const Job> jobs, std::span<const FusedTensor> parts) {
    const Request& first = *jobs[parts.front().response].response->request;
    const DType type = first.tensors[parts.front().tensor].type;
    std::vector<void*> arrays;
    std::vector<std::size_t> counts;
    std::vector<float*> errors;
    std::vector<OwnedMemory> zeros;
    bool has_errors = false;
    for (const FusedTensor& part : parts) {
        const Job& job = jobs[part.response];
        const Request& request = *job.response->request;
        const std::size_t count = request.tensors[part.tensor].elements();
        counts.push_back(count);
        if (job.task == nullptr) {
            zeros.push_back(allocate(count * bytes_of(type)));
            if (count > 0) std::memset(zeros.back().get(), 0, count * bytes_of(type));
            arrays.push_back(zeros.back().get());
            errors.push_back(nullptr);
            continue;
        }
        const Task::Buffers& own = job.task->buffers[part.tensor];
        scale(own.in, own.out, count, type, request.prescale);
        arrays.push_back(own.out);
        errors.push_back(own.error);
        has_errors = has_errors || own.error != nullptr;
    }
    const dtrun_compression how{sizeof how, first.format, first.stochastic ? 1 : 0, nullptr, 0};
    auto done = checked(dtrun_allreduce_many(comm_, arrays.data(), counts.data(), arrays.size(),
                                             static_cast<int>(type), static_cast<int>(first.reduce),
                                             first.format != 0 ? &how : nullptr,
                                             has_errors ? errors.data() : nullptr));
    if (!done) return done;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const Job& job = jobs[parts[i].response];
        if (job.task != nullptr)
            scale(arrays[i], arrays[i], counts[i], type, job.response->request->postscale);
    }
    return {};
}

Result<Outcome> Executor::perform(const Job& job) {
    Outcome outcome;
    Result<void> done;
    switch (job.response->request->operation) {
        case RequestKind::allgather:
            return allgather(job);
        case RequestKind::alltoall:
            return alltoall(job);
        case RequestKind::broadcast:
            done = broadcast(job);
            break;
        case RequestKind::reduce_scatter:
            done = reduce_scatter(job);
            break;
        case RequestKind::join:
            outcome.last_joined = job.response->last_joined;
            break;
        case RequestKind::allreduce:
        case RequestKind::barrier:  // that all have announced it is all there is to it
            break;
    }
    if (!done) return std::unexpected(done.error());
    return outcome;
}

Result<Outcome> Executor::allgather(const Job& job) {
    Outcome outcome;
    const Request& request = *job.response->request;
    for (std::size_t t = 0; t < request.tensors.size(); ++t) {
        const TensorSpec& tensor = request.tensors[t];
        std::vector<std::int64_t> rows;
        std::vector<std::size_t> counts;
        for (std::uint32_t rank = 0; rank < size_; ++rank) {
            rows.push_back(job.response->extras[rank][t]);
            counts.push_back(static_cast<std::size_t>(rows.back()) * tensor.row_elements());
        }
        const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
        outcome.data.push_back(allocate(all * bytes_of(tensor.type)));
        outcome.rows.push_back(std::move(rows));
        if (all == 0) continue;
        const int type = static_cast<int>(tensor.type);
        const void* const in = job.task->buffers[t].in;
        void* const out = outcome.data.back().get();
        const bool even = std::ranges::count(counts, counts.front()) == std::ssize(counts);
        auto done = checked(even ? dtrun_allgather(comm_, in, out, counts.front(), type)
                                 : dtrun_allgatherv(comm_, in, out, counts.data(), type));
        if (!done) return std::unexpected(done.error());
    }
    return outcome;
}

Result<void> Executor::broadcast(const Job& job) {
    const Request& request = *job.response->request;
    for (std::size_t t = 0; t < request.tensors.size(); ++t) {
        const TensorSpec& tensor = request.tensors[t];
        const Task::Buffers& own = job.task->buffers[t];
        if (rank_ == request.root) scale(own.in, own.out, tensor.elements(), tensor.type, 1);
        auto done = checked(dtrun_broadcast(comm_, own.out, tensor.elements(),
                                            static_cast<int>(tensor.type), request.root));
        if (!done) return done;
    }
    return {};
}

Result<Outcome> Executor::alltoall(const Job& job) {
    Outcome outcome;
    const TensorSpec& tensor = job.response->request->tensors.front();
    const auto& sent = job.response->extras[rank_];
    std::vector<std::int64_t> received;
    for (std::uint32_t rank = 0; rank < size_; ++rank)
        received.push_back(job.response->extras[rank][rank_]);
    const auto rows = std::accumulate(received.begin(), received.end(), std::int64_t{0});
    const std::size_t row_elements = tensor.row_elements();
    outcome.data.push_back(
        allocate(static_cast<std::size_t>(rows) * row_elements * bytes_of(tensor.type)));
    const auto* const in = static_cast<const std::byte*>(job.task->buffers.front().in);
    auto* const out = static_cast<std::byte*>(outcome.data.back().get());
    const auto& all = job.response->extras;
    const bool even = std::ranges::all_of(all, [&](const std::vector<std::int64_t>& splits) {
        return std::ranges::count(splits, all[0][0]) == std::ssize(splits);
    });
    const int type = static_cast<int>(tensor.type);
    auto done = even
                    ? checked(dtrun_alltoall(
                          comm_, in, out, static_cast<std::size_t>(all[0][0]) * row_elements, type))
                    : exchange_rows(in, out, row_elements, tensor.type, sent, received);
    if (!done) return std::unexpected(done.error());
    outcome.rows.push_back(std::move(received));
    return outcome;
}

/// In step s each rank sends to the rank s behind it and receives from the rank s before it. Both
/// ends know both numbers of rows, and none sends nothing.
Result<void> Executor::exchange_rows(const std::byte* in, std::byte* out, std::size_t row_elements,
                                     DType type, const std::vector<std::int64_t>& sent,
                                     const std::vector<std::int64_t>& received) {
    const auto place = [&](const std::vector<std::int64_t>& rows, std::uint32_t rank) {
        const auto before = std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
        return static_cast<std::size_t>(before) * row_elements * bytes_of(type);
    };
    for (std::uint32_t step = 0; step < size_; ++step) {
        const std::uint32_t to = (rank_ + step) % size_;
        const std::uint32_t from = (rank_ + size_ - step) % size_;
        const auto out_count = static_cast<std::size_t>(sent[to]) * row_elements;
        const auto in_count = static_cast<std::size_t>(received[from]) * row_elements;
        const std::byte* const source = in + place(sent, to);
        std::byte* const target = out + place(received, from);
        const int number = static_cast<int>(type);
        int code = DTRUN_OK;
        if (step == 0)
            scale(source, target, in_count, type, 1);
        else if (out_count > 0 && in_count > 0)
            code = dtrun_sendrecv(comm_, source, out_count, to, target, in_count, from, number);
        else if (out_count > 0)
            code = dtrun_send(comm_, source, out_count, number, to);
        else if (in_count > 0)
            code = dtrun_recv(comm_, target, in_count, number, from);
        if (code != DTRUN_OK) return comm_error(code);
    }
    return {};
}

/// Ranks' parts are made equally long in a copy, unless they are.
Result<void> Executor::reduce_scatter(const Job& job) {
    const Request& request = *job.response->request;
    for (std::size_t t = 0; t < request.tensors.size(); ++t) {
        const TensorSpec& tensor = request.tensors[t];
        const Task::Buffers& own = job.task->buffers[t];
        const std::size_t row_bytes = tensor.row_elements() * bytes_of(tensor.type);
        const std::int64_t rows = tensor.shape.front();
        const auto part_rows = static_cast<std::size_t>(rows_of(rows, 0, size_));
        const std::size_t part = part_rows * tensor.row_elements();
        const bool even = rows % size_ == 0;
        const void* source = own.in;
        void* target = own.out;
        OwnedMemory copy, padded;
        if (!even || request.prescale != 1) {
            copy = allocate(part_rows * row_bytes * size_);
            source = copy.get();
            const auto* from = static_cast<const std::byte*>(own.in);
            for (std::uint32_t rank = 0; rank < size_; ++rank) {
                const auto number = static_cast<std::size_t>(rows_of(rows, rank, size_));
                auto* const to = static_cast<std::byte*>(copy.get()) + rank * part_rows * row_bytes;
                scale(from, to, number * tensor.row_elements(), tensor.type, request.prescale);
                std::memset(to + number * row_bytes, 0, (part_rows - number) * row_bytes);
                from += number * row_bytes;
            }
        }
        if (!even) target = (padded = allocate(part * bytes_of(tensor.type))).get();
        auto done =
            checked(dtrun_reduce_scatter(comm_, source, target, part, static_cast<int>(tensor.type),
                                         static_cast<int>(request.reduce)));
        if (!done) return done;
        const auto number = static_cast<std::size_t>(rows_of(rows, rank_, size_));
        scale(target, own.out, number * tensor.row_elements(), tensor.type, request.postscale);
    }
    return {};
}

}  // namespace dtrun::collectives
