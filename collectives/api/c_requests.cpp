// Operations of the C interface that are started, and awaited later.
#include "collectives/api/c_arguments.h"
#include "collectives/api/c_calls.h"

#include <cstdint>
#include <exception>
#include <memory>

using dtrun::Errc;
using dtrun::Result;
using namespace dtrun::collectives;
using Kind = Operation::Kind;

namespace {

/// Starts an asynchronous operation.
template <class Body>
int begin(dtrun_comm* comm, dtrun_request** request, const Result<void>& checked,
          Body body) noexcept {
    if (is_forked(comm)) return refuse_forked();
    return guarded([&]() -> Result<void> {
        if (request == nullptr) return dtrun::fail(Errc::invalid_input, "request is NULL");
        if (!checked) return checked;
        auto owner = std::make_unique<dtrun_request>(comm);
        auto* const made = owner.get();
        Communicator& communicator = *comm->communicator;
        const auto mark = communicator.mark(comm->stream.get());
        communicator.work().start([made, &communicator, mark, body] {
            Result<void> done = dtrun::fail(Errc::internal, "out of memory");
            try {
                communicator.follow(mark);
                done = body(communicator);
            } catch (const std::exception& error) {
                done = dtrun::fail(Errc::internal, "{}", error.what());
            }
            const std::lock_guard lock(made->mutex);
            made->result = std::move(done);
            made->changed.notify_all();
        });
        *request = owner.release();
        return {};
    });
}

/// The same of one that operations.def describes.
int begin(dtrun_comm* comm, dtrun_request** request, const Given& given) noexcept {
    const auto how = compression_of(given.compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    const Operation what = operation_of(comm, given);
    return begin(comm, request, check(comm, given, what, *how),
                 [what, how = *how](Communicator& communicator) {
                     return communicator.run(what, pointer(how));
                 });
}

}  // namespace

extern "C" {

int dtrun_allreduce_start(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                          int reduce, const dtrun_compression* compression,
                          dtrun_request** request) {
    return begin(comm, request, {Kind::allreduce, in, out, count, dtype, 0, reduce, compression});
}

int dtrun_allgather_start(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                          dtrun_request** request) {
    return begin(comm, request, {Kind::allgather, in, out, count, dtype});
}

int dtrun_broadcast_start(dtrun_comm* comm, void* data, size_t count, int dtype, uint32_t root,
                          dtrun_request** request) {
    return begin(comm, request, {Kind::broadcast, nullptr, data, count, dtype, root});
}

int dtrun_reduce_scatter_start(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                               int reduce, dtrun_request** request) {
    return begin(comm, request, {Kind::reduce_scatter, in, out, count, dtype, 0, reduce});
}

int dtrun_request_wait(dtrun_request* request, int64_t timeout_ms, int* done) {
    if (request == nullptr || (done == nullptr && timeout_ms >= 0))
        return ThreadError::keep(DTRUN_INVALID, "request or done is NULL");
    if (!request->owner.is_this_process()) {
        if (done != nullptr) *done = 1;
        return refuse_forked();
    }
    const dtrun::Uncancelled uncancelled;
    std::unique_lock lock(request->mutex);
    if (!request->result && Inside::of(request->of) != nullptr) {
        if (done != nullptr) *done = 0;
        return timeout_ms == 0 ? ThreadError::keep(DTRUN_TIMED_OUT, "the operation goes on")
                               : refuse_inside();
    }
    const auto over = [request] { return request->result.has_value(); };
    if (done != nullptr) *done = 0;
    if (timeout_ms < 0)
        request->changed.wait(lock, over);
    else if (!request->changed.wait_for(lock, span_of(timeout_ms), over))
        return ThreadError::keep(DTRUN_TIMED_OUT, "the operation goes on");
    if (done != nullptr) *done = 1;
    const int code = code_of(*request->result);
    lock.unlock();
    delete request;
    return code;
}

}  // extern "C"
