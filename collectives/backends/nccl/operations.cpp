#include "collectives/backends/nccl/group.h"

#include <algorithm>
#include <bit>
#include <cstring>

// Operations of NcclGroup, as NCCL has them, or made of its sends and receives.
namespace dtrun::collectives::nccl {
namespace {

NcclType nccl_type(DType type) {
    switch (type) {
        case DType::f32:
            return NcclType::f32;
        case DType::f64:
            return NcclType::f64;
        case DType::f16:
            return NcclType::f16;
        case DType::bf16:
            return NcclType::bf16;
        case DType::i8:
            return NcclType::i8;
        case DType::i32:
            return NcclType::i32;
        case DType::i64:
            return NcclType::i64;
        case DType::u8:
            break;
    }
    return NcclType::u8;
}

std::optional<NcclOp> nccl_op(Reduce reduce) {
    switch (reduce) {
        case Reduce::sum:
            return NcclOp::sum;
        case Reduce::product:
            return NcclOp::product;
        case Reduce::min:
            return NcclOp::min;
        case Reduce::max:
            return NcclOp::max;
        case Reduce::average:
            return NcclOp::average;
        case Reduce::adasum:
            break;
    }
    return std::nullopt;
}

}  // namespace

NcclResult NcclGroup::copy_own_part(void* to, const void* from, std::size_t bytes) const {
    if (to == from) return NcclResult::success;
    const int code = library_->gpu.memcpy_async(to, from, bytes, kMemcpyDefault, stream_);
    return code == kGpuSuccess ? NcclResult::success : NcclResult::unhandled_cuda_error;
}

/// NCCL's average multiplies by 1/n, rounded to the type, before it adds: of bf16 and three ranks all
/// averages are 0.2 % too large. Powers of two are exact.
Result<bool> NcclGroup::averages_by_division(DType type, Reduce reduce) {
    const bool half = type == DType::f16 || type == DType::bf16;
    if (reduce != Reduce::average || !half || std::has_single_bit(size_)) return false;
    const auto agreed = agree_on_codecs(0);
    if (agreed) return true;
    if (agreed.error().code != Errc::invalid_input) return std::unexpected(agreed.error());
    return false;  // on no rank, so that all have the same bits
}

/// \param results  of this rank, that a sum is to be divided in
/// \param enqueue  puts the operation into the stream
Result<void> NcclGroup::run_reduction(const char* what, DType type, Reduce reduce,
                                      std::span<const Array> results,
                                      const std::function<Result<void>(NcclOp op)>& enqueue) {
    const auto by_division = averages_by_division(type, reduce);
    if (!by_division) return std::unexpected(by_division.error());
    return perform(what, [&]() -> Result<void> {
        auto ok = enqueue(*by_division ? NcclOp::sum : *nccl_op(reduce));
        for (const Array& result : results) {
            if (!ok || !*by_division) break;
            const int code = codecs_->divide(result.data, result.count, type, size_, stream_);
            if (code != kGpuSuccess)
                return broken(
                    {Errc::internal, fmt::format("nccl: {}: {}", what, codecs_->error_text(code))});
        }
        return ok;
    });
}

Result<void> NcclGroup::run(const Operation& what) {
    const OperationRow& row = row_of(what.kind);
    if (row.reduces && !nccl_op(what.reduce))
        return fail(Errc::invalid_input, "nccl: no {} with {}", row.words, name_of(what.reduce));
    if (what.kind != Operation::Kind::barrier) {
        const std::size_t given = elements_of(row.in, what, rank_, size_);
        const std::size_t taken = elements_of(row.out, what, rank_, size_);
        if (given + taken == 0) return state();
        if (auto ok = check(row.words, what.in, given); !ok) return ok;
        if (auto ok = check(row.words, what.out, taken); !ok) return ok;
    }
    if (row.reduces) return reduce(what);
    return perform(row.words,
                   [&](NcclComm* comm, GpuStream* stream) { return move(what, comm, stream); });
}

Result<void> NcclGroup::reduce(const Operation& what) {
    const char* const words = row_of(what.kind).words;
    const bool has_result = what.kind != Operation::Kind::reduce || rank_ == what.root;
    const Array result{what.out, has_result ? what.count : 0};
    return run_reduction(words, what.type, what.reduce, {&result, 1}, [&](NcclOp op) {
        return put(words, [&](NcclComm* comm, GpuStream* stream) {
            const NcclFunctions& nccl = library_->nccl;
            const NcclType type = nccl_type(what.type);
            switch (what.kind) {
                case Operation::Kind::allreduce:
                    return nccl.all_reduce(what.in, what.out, what.count, type, op, comm, stream);
                case Operation::Kind::reduce:
                    return nccl.reduce(what.in, what.out, what.count, type, op,
                                       static_cast<int>(what.root), comm, stream);
                case Operation::Kind::reduce_scatter:
                    return nccl.reduce_scatter(what.in, what.out, what.count, type, op, comm,
                                               stream);
                default:  // another one has to be made of these
                    return NcclResult::invalid_usage;
            }
        });
    });
}

NcclResult NcclGroup::move(const Operation& what, NcclComm* comm, GpuStream* stream) {
    using Kind = Operation::Kind;
    const NcclFunctions& nccl = library_->nccl;
    switch (what.kind) {
        case Kind::broadcast:
            return nccl.broadcast(what.out, what.out, what.bytes(), NcclType::u8,
                                  static_cast<int>(what.root), comm, stream);
        case Kind::allgather:
            return nccl.all_gather(what.in, what.out, what.bytes(), NcclType::u8, comm, stream);
        case Kind::allgatherv:
            return allgatherv(what, comm, stream);
        case Kind::gather:
            return gather(what, comm, stream);
        case Kind::scatter:
            return scatter(what, comm, stream);
        case Kind::alltoall:
            return alltoall(what, comm, stream);
        case Kind::barrier:
            return nccl.all_reduce(scratch_, scratch_, 1, NcclType::i32, NcclOp::sum, comm, stream);
        default:  // another one has to be made of sends and receives
            return NcclResult::invalid_usage;
    }
}

/// Broadcasts each rank's part, so that on its way to many hosts a part crosses each wire once.
NcclResult NcclGroup::allgatherv(const Operation& what, NcclComm* comm, GpuStream* stream) {
    const auto& parts = what.counts;
    if (std::ranges::count(parts, parts.front()) == std::ssize(parts))
        return library_->nccl.all_gather(what.in, what.out, parts.front(), NcclType::u8, comm,
                                         stream);
    return grouped([&] {
        std::size_t offset = 0;
        for (std::uint32_t root = 0; root < size_; offset += parts[root++]) {
            if (parts[root] == 0) continue;
            const void* const from = root == rank_ ? what.in : at_byte(what.out, offset);
            const NcclResult result =
                library_->nccl.broadcast(from, at_byte(what.out, offset), parts[root], NcclType::u8,
                                         static_cast<int>(root), comm, stream);
            if (is_error(result)) return result;
        }
        return NcclResult::success;
    });
}

NcclResult NcclGroup::gather(const Operation& what, NcclComm* comm, GpuStream* stream) {
    const NcclFunctions& nccl = library_->nccl;
    const std::size_t bytes = what.bytes();
    const int to = static_cast<int>(what.root);
    if (nccl.gather != nullptr)
        return nccl.gather(what.in, what.out, bytes, NcclType::u8, to, comm, stream);
    if (rank_ != what.root) return nccl.send(what.in, bytes, NcclType::u8, to, comm, stream);
    const NcclResult copied = copy_own_part(at_byte(what.out, rank_ * bytes), what.in, bytes);
    if (is_error(copied)) return copied;
    return grouped([&] {
        for (std::uint32_t from = 0; from < size_; ++from) {
            if (from == rank_) continue;
            const NcclResult result = nccl.recv(at_byte(what.out, from * bytes), bytes,
                                                NcclType::u8, static_cast<int>(from), comm, stream);
            if (is_error(result)) return result;
        }
        return NcclResult::success;
    });
}

NcclResult NcclGroup::scatter(const Operation& what, NcclComm* comm, GpuStream* stream) {
    const NcclFunctions& nccl = library_->nccl;
    const std::size_t bytes = what.bytes();
    const int from = static_cast<int>(what.root);
    if (nccl.scatter != nullptr)
        return nccl.scatter(what.in, what.out, bytes, NcclType::u8, from, comm, stream);
    if (rank_ != what.root) return nccl.recv(what.out, bytes, NcclType::u8, from, comm, stream);
    const NcclResult copied = copy_own_part(what.out, at_byte(what.in, rank_ * bytes), bytes);
    if (is_error(copied)) return copied;
    return grouped([&] {
        for (std::uint32_t to = 0; to < size_; ++to) {
            if (to == rank_) continue;
            const NcclResult result = nccl.send(at_byte(what.in, to * bytes), bytes, NcclType::u8,
                                                static_cast<int>(to), comm, stream);
            if (is_error(result)) return result;
        }
        return NcclResult::success;
    });
}

NcclResult NcclGroup::alltoall(const Operation& what, NcclComm* comm, GpuStream* stream) {
    const NcclFunctions& nccl = library_->nccl;
    const std::size_t bytes = what.bytes();
    if (nccl.all_to_all != nullptr)
        return nccl.all_to_all(what.in, what.out, bytes, NcclType::u8, comm, stream);
    const NcclResult copied =
        copy_own_part(at_byte(what.out, rank_ * bytes), at_byte(what.in, rank_ * bytes), bytes);
    if (is_error(copied)) return copied;
    return grouped([&] {
        for (std::uint32_t step = 1; step < size_; ++step) {
            const std::uint32_t to = (rank_ + step) % size_;
            const std::uint32_t from = (rank_ + size_ - step) % size_;
            NcclResult result = nccl.send(at_byte(what.in, to * bytes), bytes, NcclType::u8,
                                          static_cast<int>(to), comm, stream);
            if (!is_error(result))
                result = nccl.recv(at_byte(what.out, from * bytes), bytes, NcclType::u8,
                                   static_cast<int>(from), comm, stream);
            if (is_error(result)) return result;
        }
        return NcclResult::success;
    });
}

/// NCCL makes few kernels of the many calls of a group.
Result<void> NcclGroup::allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce) {
    constexpr std::size_t kCallsMax = 256;  // of a group: it keeps them all until it launches them
    constexpr const char* kWhat = "allreduce of many arrays";
    if (!nccl_op(reduce))
        return fail(Errc::invalid_input, "nccl: no allreduce with {}", name_of(reduce));
    std::vector<Array> some;
    for (const Array& array : arrays) {
        if (auto ok = check("allreduce", array.data, array.count); !ok) return ok;
        if (array.count > 0) some.push_back(array);
    }
    if (some.empty()) return state();
    const auto put_batch = [&](std::span<const Array> batch, NcclOp op) {
        return put(kWhat, [&](NcclComm* comm, GpuStream* stream) {
            return grouped([&] {
                for (const Array& array : batch) {
                    const NcclResult result = library_->nccl.all_reduce(
                        array.data, array.data, array.count, nccl_type(type), op, comm, stream);
                    if (is_error(result)) return result;
                }
                return NcclResult::success;
            });
        });
    };
    return run_reduction(kWhat, type, reduce, some, [&](NcclOp op) -> Result<void> {
        for (std::span<const Array> left = some; !left.empty();) {
            const std::size_t number = std::min(left.size(), kCallsMax);
            if (auto ok = put_batch(left.first(number), op); !ok) return ok;
            left = left.subspan(number);
        }
        return {};
    });
}

/// Copies the data through scratch memory of the GPU, chunk by chunk, since NCCL takes no other.
Result<void> NcclGroup::allgather_on_host(const void* in, void* out, std::size_t bytes) {
    const std::size_t chunk_max = scratch_bytes_ / size_;
    for (std::size_t done = 0; done < bytes; done += chunk_max) {
        const std::size_t chunk = std::min(chunk_max, bytes - done);
        const std::size_t own = rank_ * chunk;
        std::memcpy(at_byte(staging_, own), at_byte(in, done), chunk);
        auto ok = perform("exchange", [&] {
            auto put_in = copy("exchange", at_byte(scratch_, own), at_byte(staging_, own), chunk);
            if (!put_in) return put_in;
            auto sent = put("exchange", [&](NcclComm* comm, GpuStream* stream) {
                return library_->nccl.all_gather(at_byte(scratch_, own), scratch_, chunk,
                                                 NcclType::u8, comm, stream);
            });
            if (!sent) return sent;
            return copy("exchange", staging_, scratch_, chunk * size_);
        });
        if (!ok) return ok;
        for (std::uint32_t rank = 0; rank < size_; ++rank)
            std::memcpy(at_byte(out, rank * bytes + done), at_byte(staging_, rank * chunk), chunk);
    }
    return state();
}

}  // namespace dtrun::collectives::nccl
