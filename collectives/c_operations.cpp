// Operations of the C interface that return once they are done.
#include "collectives/c_arguments.h"
#include "collectives/c_calls.h"

#include <algorithm>
#include <cstdint>
#include <vector>

using dtrun::Result;
using namespace dtrun::collectives;

extern "C" {

int dtrun_allreduce(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                    int reduce, const dtrun_compression* compression) {
    const auto how = compression_of(compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    return operate(
        comm,
        first_failure(check(comm), check(dtype, in, count, "in"), check(dtype, out, count, "out"),
                      check_reduce(reduce), check_apart(dtype, in, count, out, count, 0),
                      check_error_apart(*how, count, range_of(dtype, in, count),
                                        range_of(dtype, out, count))),
        [&](Communicator& communicator) {
            return communicator.allreduce(in, out, count, type_of(dtype), reduce_of(reduce),
                                          pointer(*how));
        });
}

int dtrun_allreduce_many(dtrun_comm* comm, void* const* arrays, const size_t* counts, size_t number,
                         int dtype, int reduce, const dtrun_compression* compression,
                         float* const* errors) {
    const auto how = compression_of(compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    Result<void> checked =
        first_failure(check(comm), check(dtype, arrays, number, "arrays"),
                      check(dtype, counts, number, "counts"), check_reduce(reduce));
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
    const bool needed = comm != nullptr && comm->communicator->rank() == root;
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in"),
                                 check(dtype, out, needed ? count : 0, "out"), check_reduce(reduce),
                                 check_apart(dtype, in, count, out, needed ? count : 0, 0)),
                   [&](Communicator& communicator) {
                       return communicator.reduce(in, out, count, type_of(dtype), reduce_of(reduce),
                                                  root);
                   });
}

int dtrun_reduce_scatter(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                         int reduce) {
    return operate(
        comm,
        first_failure(
            check(comm), check(dtype, in, count, "in", ranks_of(comm)),
            check(dtype, out, count, "out"), check_reduce(reduce),
            check_apart(dtype, in, count * ranks_of(comm), out, count, count * rank_of(comm))),
        [&](Communicator& communicator) {
            return communicator.reduce_scatter(in, out, count, type_of(dtype), reduce_of(reduce));
        });
}

int dtrun_reduce_scatter_compressed(dtrun_comm* comm, const void* in, void* out, size_t count,
                                    int dtype, int reduce, const dtrun_compression* compression) {
    const auto how = compression_of(compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in", ranks_of(comm)),
                                 check(dtype, out, count, "out"), check_reduce(reduce),
                                 check_apart(dtype, in, count * ranks_of(comm), out, count,
                                             count * rank_of(comm)),
                                 check_error_apart(*how, count * ranks_of(comm),
                                                   range_of(dtype, in, count * ranks_of(comm)),
                                                   range_of(dtype, out, count))),
                   [&](Communicator& communicator) {
                       return communicator.reduce_scatter(in, out, count, type_of(dtype),
                                                          reduce_of(reduce), pointer(*how));
                   });
}

int dtrun_broadcast(dtrun_comm* comm, void* data, size_t count, int dtype, uint32_t root) {
    return operate(comm, first_failure(check(comm), check(dtype, data, count, "data")),
                   [&](Communicator& communicator) {
                       return communicator.broadcast(data, count, type_of(dtype), root);
                   });
}

int dtrun_allgather(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype) {
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in"),
                                 check(dtype, out, count, "out", ranks_of(comm)),
                                 check_apart(dtype, out, count * ranks_of(comm), in, count,
                                             count * rank_of(comm))),
                   [&](Communicator& communicator) {
                       return communicator.allgather(in, out, count, type_of(dtype));
                   });
}

int dtrun_allgather_compressed(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                               const dtrun_compression* compression) {
    const auto how = compression_of(compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in"),
                                 check(dtype, out, count, "out", ranks_of(comm)),
                                 check_apart(dtype, out, count * ranks_of(comm), in, count,
                                             count * rank_of(comm)),
                                 check_error_apart(*how, count, range_of(dtype, in, count),
                                                   range_of(dtype, out, count * ranks_of(comm)))),
                   [&](Communicator& communicator) {
                       return communicator.allgather(in, out, count, type_of(dtype), pointer(*how));
                   });
}

int dtrun_allgatherv(dtrun_comm* comm, const void* in, void* out, const size_t* counts, int dtype) {
    auto checked = first_failure(check(comm), check(dtype, counts, 1, "counts"));
    std::size_t own = 0, all = 0, before = 0;
    for (std::uint32_t rank = 0; checked && rank < comm->communicator->size(); ++rank) {
        if (rank == comm->communicator->rank()) own = counts[rank], before = all;
        checked = check(dtype, counts, counts[rank], "a rank's part");
        if (checked) checked = check(dtype, counts, all += counts[rank], "out");
    }
    checked = first_failure(checked, check(dtype, in, own, "in"), check(dtype, out, all, "out"),
                            check_apart(dtype, out, all, in, own, before));
    return operate(comm, checked, [&](Communicator& communicator) {
        return communicator.allgatherv(in, out, {counts, communicator.size()}, type_of(dtype));
    });
}

int dtrun_gather(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                 uint32_t root) {
    const bool needed = comm != nullptr && comm->communicator->rank() == root;
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in"),
                                 check(dtype, out, needed ? count : 0, "out", ranks_of(comm)),
                                 check_apart(dtype, out, needed ? count * ranks_of(comm) : 0, in,
                                             count, count * rank_of(comm))),
                   [&](Communicator& communicator) {
                       return communicator.gather(in, out, count, type_of(dtype), root);
                   });
}

int dtrun_scatter(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                  uint32_t root) {
    const bool needed = comm != nullptr && comm->communicator->rank() == root;
    return operate(
        comm,
        first_failure(check(comm), check(dtype, in, needed ? count : 0, "in", ranks_of(comm)),
                      check(dtype, out, count, "out"),
                      check_apart(dtype, in, needed ? count * ranks_of(comm) : 0, out, count,
                                  count * rank_of(comm))),
        [&](Communicator& communicator) {
            return communicator.scatter(in, out, count, type_of(dtype), root);
        });
}

int dtrun_alltoall(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype) {
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in", ranks_of(comm)),
                                 check(dtype, out, count, "out", ranks_of(comm)),
                                 check_apart(dtype, in, count * ranks_of(comm), out,
                                             count * ranks_of(comm), kNowhere)),
                   [&](Communicator& communicator) {
                       return communicator.alltoall(in, out, count, type_of(dtype));
                   });
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
    return operate(comm,
                   first_failure(check(comm), check(dtype, out, out_count, "out"),
                                 check(dtype, in, in_count, "in"),
                                 check_apart(dtype, in, in_count, out, out_count, kNowhere)),
                   [&](Communicator& communicator) {
                       return communicator.sendrecv(out, out_count, to, in, in_count, from,
                                                    type_of(dtype));
                   });
}

int dtrun_comm_barrier(dtrun_comm* comm) {
    return operate(comm, check(comm),
                   [](Communicator& communicator) { return communicator.barrier(); });
}

}  // extern "C"
