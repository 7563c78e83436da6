#include "collectives/nccl/group.h"

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

std::byte* at(void* data, std::size_t offset) {
    return static_cast<std::byte*>(data) + offset;
}

const std::byte* at(const void* data, std::size_t offset) {
    return static_cast<const std::byte*>(data) + offset;
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

Result<void> NcclGroup::allreduce(const void* in, void* out, std::size_t count, DType type,
                                  Reduce reduce) {
    if (!nccl_op(reduce))
        return fail(Errc::invalid_input, "nccl: no allreduce with {}", name_of(reduce));
    if (count == 0) return state();
    for (const void* const data : {in, static_cast<const void*>(out)})
        if (auto ok = check("allreduce", data, count); !ok) return ok;
    const Array result{out, count};
    return run_reduction("allreduce", type, reduce, {&result, 1}, [&](NcclOp op) {
        return put("allreduce", [&](NcclComm* comm, GpuStream* stream) {
            return library_->nccl.all_reduce(in, out, count, nccl_type(type), op, comm, stream);
        });
    });
}

Result<void> NcclGroup::reduce(const void* in, void* out, std::size_t count, DType type,
                               Reduce reduce, std::uint32_t root) {
    if (!nccl_op(reduce))
        return fail(Errc::invalid_input, "nccl: no reduce with {}", name_of(reduce));
    if (count == 0) return state();
    if (auto ok = check("reduce", in, count); !ok) return ok;
    if (auto ok = check("reduce", out, rank_ == root ? count : 0); !ok) return ok;
    const Array result{out, rank_ == root ? count : 0};
    return run_reduction("reduce", type, reduce, {&result, 1}, [&](NcclOp op) {
        return put("reduce", [&](NcclComm* comm, GpuStream* stream) {
            return library_->nccl.reduce(in, out, count, nccl_type(type), op,
                                         static_cast<int>(root), comm, stream);
        });
    });
}

Result<void> NcclGroup::reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                       Reduce reduce) {
    if (!nccl_op(reduce))
        return fail(Errc::invalid_input, "nccl: no reduce-scatter with {}", name_of(reduce));
    if (count == 0) return state();
    for (const void* const data : {in, static_cast<const void*>(out)})
        if (auto ok = check("reduce-scatter", data, count); !ok) return ok;
    const Array result{out, count};
    return run_reduction("reduce-scatter", type, reduce, {&result, 1}, [&](NcclOp op) {
        return put("reduce-scatter", [&](NcclComm* comm, GpuStream* stream) {
            return library_->nccl.reduce_scatter(in, out, count, nccl_type(type), op, comm, stream);
        });
    });
}

Result<void> NcclGroup::broadcast(void* data, std::size_t bytes, std::uint32_t root) {
    if (bytes == 0) return state();
    if (auto ok = check("broadcast", data, bytes); !ok) return ok;
    return run("broadcast", [&](NcclComm* comm, GpuStream* stream) {
        return library_->nccl.broadcast(data, data, bytes, NcclType::u8, static_cast<int>(root),
                                        comm, stream);
    });
}

Result<void> NcclGroup::allgather(const void* in, void* out, std::size_t bytes) {
    if (bytes == 0) return state();
    for (const void* const data : {in, static_cast<const void*>(out)})
        if (auto ok = check("allgather", data, bytes); !ok) return ok;
    return run("allgather", [&](NcclComm* comm, GpuStream* stream) {
        return library_->nccl.all_gather(in, out, bytes, NcclType::u8, comm, stream);
    });
}

/// Broadcasts each rank's part, so that on its way to many hosts a part crosses each wire once.
Result<void> NcclGroup::allgatherv(const void* in, void* out, std::span<const std::size_t> bytes) {
    if (bytes.size() != size_)
        return fail(Errc::invalid_input, "nccl: allgatherv: {} parts, {} ranks", bytes.size(),
                    size_);
    if (std::all_of(bytes.begin(), bytes.end(), [&](auto part) { return part == bytes.front(); }))
        return allgather(in, out, bytes.front());
    if (auto ok = check("allgatherv", in, bytes[rank_]); !ok) return ok;
    if (auto ok = check("allgatherv", out, 1); !ok) return ok;
    return run("allgatherv", [&](NcclComm* comm, GpuStream* stream) {
        return grouped([&] {
            std::size_t offset = 0;
            for (std::uint32_t root = 0; root < size_; offset += bytes[root++]) {
                if (bytes[root] == 0) continue;
                const void* const from = root == rank_ ? in : at(out, offset);
                const NcclResult result =
                    library_->nccl.broadcast(from, at(out, offset), bytes[root], NcclType::u8,
                                             static_cast<int>(root), comm, stream);
                if (is_error(result)) return result;
            }
            return NcclResult::success;
        });
    });
}

Result<void> NcclGroup::gather(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    if (bytes == 0) return state();
    if (auto ok = check("gather", in, bytes); !ok) return ok;
    if (auto ok = check("gather", out, rank_ == root ? bytes : 0); !ok) return ok;
    const NcclFunctions& nccl = library_->nccl;
    return run("gather", [&](NcclComm* comm, GpuStream* stream) -> NcclResult {
        const int to = static_cast<int>(root);
        if (nccl.gather != nullptr)
            return nccl.gather(in, out, bytes, NcclType::u8, to, comm, stream);
        if (rank_ != root) return nccl.send(in, bytes, NcclType::u8, to, comm, stream);
        const NcclResult copied = copy_own_part(at(out, rank_ * bytes), in, bytes);
        if (is_error(copied)) return copied;
        return grouped([&] {
            for (std::uint32_t from = 0; from < size_; ++from) {
                if (from == rank_) continue;
                const NcclResult result = nccl.recv(at(out, from * bytes), bytes, NcclType::u8,
                                                    static_cast<int>(from), comm, stream);
                if (is_error(result)) return result;
            }
            return NcclResult::success;
        });
    });
}

Result<void> NcclGroup::scatter(const void* in, void* out, std::size_t bytes, std::uint32_t root) {
    if (bytes == 0) return state();
    if (auto ok = check("scatter", in, rank_ == root ? bytes : 0); !ok) return ok;
    if (auto ok = check("scatter", out, bytes); !ok) return ok;
    const NcclFunctions& nccl = library_->nccl;
    return run("scatter", [&](NcclComm* comm, GpuStream* stream) -> NcclResult {
        const int from = static_cast<int>(root);
        if (nccl.scatter != nullptr)
            return nccl.scatter(in, out, bytes, NcclType::u8, from, comm, stream);
        if (rank_ != root) return nccl.recv(out, bytes, NcclType::u8, from, comm, stream);
        const NcclResult copied = copy_own_part(out, at(in, rank_ * bytes), bytes);
        if (is_error(copied)) return copied;
        return grouped([&] {
            for (std::uint32_t to = 0; to < size_; ++to) {
                if (to == rank_) continue;
                const NcclResult result = nccl.send(at(in, to * bytes), bytes, NcclType::u8,
                                                    static_cast<int>(to), comm, stream);
                if (is_error(result)) return result;
            }
            return NcclResult::success;
        });
    });
}

Result<void> NcclGroup::alltoall(const void* in, void* out, std::size_t bytes) {
    if (bytes == 0) return state();
    for (const void* const data : {in, static_cast<const void*>(out)})
        if (auto ok = check("all-to-all", data, bytes); !ok) return ok;
    const NcclFunctions& nccl = library_->nccl;
    return run("all-to-all", [&](NcclComm* comm, GpuStream* stream) -> NcclResult {
        if (nccl.all_to_all != nullptr)
            return nccl.all_to_all(in, out, bytes, NcclType::u8, comm, stream);
        const NcclResult copied =
            copy_own_part(at(out, rank_ * bytes), at(in, rank_ * bytes), bytes);
        if (is_error(copied)) return copied;
        return grouped([&] {
            for (std::uint32_t step = 1; step < size_; ++step) {
                const std::uint32_t to = (rank_ + step) % size_;
                const std::uint32_t from = (rank_ + size_ - step) % size_;
                NcclResult result = nccl.send(at(in, to * bytes), bytes, NcclType::u8,
                                              static_cast<int>(to), comm, stream);
                if (!is_error(result))
                    result = nccl.recv(at(out, from * bytes), bytes, NcclType::u8,
                                       static_cast<int>(from), comm, stream);
                if (is_error(result)) return result;
            }
            return NcclResult::success;
        });
    });
}

Result<void> NcclGroup::barrier() {
    return run("barrier", [&](NcclComm* comm, GpuStream* stream) {
        return library_->nccl.all_reduce(scratch_, scratch_, 1, NcclType::i32, NcclOp::sum, comm,
                                         stream);
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

/// Copies the data through scratch memory of the GPU, slice by slice, since NCCL takes no other.
Result<void> NcclGroup::allgather_on_host(const void* in, void* out, std::size_t bytes) {
    const std::size_t slice_max = scratch_bytes_ / size_;
    for (std::size_t done = 0; done < bytes; done += slice_max) {
        const std::size_t slice = std::min(slice_max, bytes - done);
        const std::size_t own = rank_ * slice;
        std::memcpy(at(staging_, own), at(in, done), slice);
        auto ok = perform("exchange", [&] {
            auto put_in = copy("exchange", at(scratch_, own), at(staging_, own), slice);
            if (!put_in) return put_in;
            auto sent = put("exchange", [&](NcclComm* comm, GpuStream* stream) {
                return library_->nccl.all_gather(at(scratch_, own), scratch_, slice, NcclType::u8,
                                                 comm, stream);
            });
            if (!sent) return sent;
            return copy("exchange", staging_, scratch_, slice * size_);
        });
        if (!ok) return ok;
        for (std::uint32_t rank = 0; rank < size_; ++rank)
            std::memcpy(at(out, rank * bytes + done), at(staging_, rank * slice), slice);
    }
    return state();
}

}  // namespace dtrun::collectives::nccl
