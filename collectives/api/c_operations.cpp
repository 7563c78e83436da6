// Operations of the C interface that return once they are done.
#include "collectives/api/c_arguments.h"
#include "collectives/api/c_calls.h"

#include <algorithm>
#include <cstdint>
#include <vector>

using dtrun::Result;
using namespace dtrun::collectives;
using Kind = Operation::Kind;

extern "C" {

int dtrun_allreduce(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                    int reduce, const dtrun_compression* compression) {
    return operate(comm, {Kind::allreduce, in, out, count, dtype, 0, reduce, compression});
}

int dtrun_allreduce_many(dtrun_comm* comm, void* const* arrays, const size_t* counts, size_t number,
                         int dtype, int reduce, const dtrun_compression* compression,
                         float* const* errors) {
    const auto how = compression_of(compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    Result<void> checked = first_failure(check(comm), check(dtype, arrays, number, "arrays"),
                                         check(dtype, counts, number, "counts"));
    if (checked) checked = check_reduce(dtype, reduce);
    for (std::size_t i = 0; checked && i < number; ++i)
        checked = check(dtype, arrays[i], counts[i], "an array");
    if (checked) checked = check_all_apart(dtype, arrays, counts, number, *how ? errors : nullptr);
    return operate(comm, checked, [&](Communicator& communicator) {
        std::vector<Array> list;
        list.reserve(number);
        for (std::size_t i = 0; i < number; ++i)
            list.push_back({arrays[i], counts[i], errors != nullptr ? errors[i] : nullptr});
        return communicator.allreduce_many(list, type_of(dtype), reduce_of(reduce), pointer(*how));
    });
}

int dtrun_reduce_to(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                    int reduce, uint32_t root) {
    return operate(comm, {Kind::reduce, in, out, count, dtype, root, reduce});
}

int dtrun_reduce_scatter(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                         int reduce) {
    return dtrun_reduce_scatter_compressed(comm, in, out, count, dtype, reduce, nullptr);
}

int dtrun_reduce_scatter_compressed(dtrun_comm* comm, const void* in, void* out, size_t count,
                                    int dtype, int reduce, const dtrun_compression* compression) {
    return operate(comm, {Kind::reduce_scatter, in, out, count, dtype, 0, reduce, compression});
}

int dtrun_broadcast(dtrun_comm* comm, void* data, size_t count, int dtype, uint32_t root) {
    return operate(comm, {Kind::broadcast, nullptr, data, count, dtype, root});
}

int dtrun_allgather(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype) {
    return dtrun_allgather_compressed(comm, in, out, count, dtype, nullptr);
}

int dtrun_allgather_compressed(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                               const dtrun_compression* compression) {
    return operate(comm, {Kind::allgather, in, out, count, dtype, 0, DTRUN_SUM, compression});
}

int dtrun_allgatherv(dtrun_comm* comm, const void* in, void* out, const size_t* counts, int dtype) {
    return operate(
        comm, {.kind = Kind::allgatherv, .in = in, .out = out, .dtype = dtype, .counts = counts});
}

int dtrun_gather(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                 uint32_t root) {
    return operate(comm, {Kind::gather, in, out, count, dtype, root});
}

int dtrun_scatter(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                  uint32_t root) {
    return operate(comm, {Kind::scatter, in, out, count, dtype, root});
}

int dtrun_alltoall(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype) {
    return operate(comm, {Kind::alltoall, in, out, count, dtype});
}

int dtrun_comm_barrier(dtrun_comm* comm) {
    return operate(comm, {Kind::barrier});
}

int dtrun_send(dtrun_comm* comm, const void* data, size_t count, int dtype, uint32_t to) {
    return operate(comm, first_failure(check(comm), check(dtype, data, count, "data")),
                   [&](Communicator& communicator) {
                       return communicator.send(data, count, type_of(dtype), to);
                   });
}

int dtrun_recv(dtrun_comm* comm, void* data, size_t count, int dtype, uint32_t from) {
    return operate(comm, first_failure(check(comm), check(dtype, data, count, "data")),
                   [&](Communicator& communicator) {
                       return communicator.receive(data, count, type_of(dtype), from);
                   });
}

int dtrun_sendrecv(dtrun_comm* comm, const void* out, size_t out_count, uint32_t to, void* in,
                   size_t in_count, uint32_t from, int dtype) {
    auto checked = first_failure(check(comm), check(dtype, out, out_count, "out"),
                                 check(dtype, in, in_count, "in"));
    if (checked) checked = check_apart(dtype, in, in_count, out, out_count, kNowhere);
    return operate(comm, checked, [&](Communicator& communicator) {
        return communicator.sendrecv(out, out_count, to, in, in_count, from, type_of(dtype));
    });
}

}  // extern "C"
