// The C interface: arguments are checked, no exception leaves it, and what has failed becomes a code
// and a text.
#include "collectives/c_errors.h"
#include "collectives/caller_stream.h"
#include "collectives/codec/format_table.h"
#include "collectives/communicator.h"
#include "collectives/handles.h"
#include "collectives/host_address.h"
#include "collectives/include/dtrun_collectives.h"
#include "collectives/interpreter_lock.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>

using dtrun::Errc;
using dtrun::Error;
using dtrun::Result;
using namespace dtrun::collectives;

namespace {

/// How many forks there are between this process and the one that loaded the library.
std::atomic<unsigned> forks = 0;

/// Distinguishes the process that made an object from a forked child, which has neither its threads
/// nor its connections.
class Owner {
public:
    Owner() : forks_(forks) {
        static std::once_flag once;
        std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { ++forks; }); });
    }
    bool is_this_process() const { return forks_ == forks; }

private:
    unsigned forks_;
};

}  // namespace

struct dtrun_comm {
    std::unique_ptr<Communicator> communicator;
    InterpreterLock lock;
    Owner owner;
    CallerStream stream;
};

void dtrun::collectives::forget_interpreter(dtrun_comm* comm) {
    comm->lock = {};
}

struct dtrun_request {
    Owner owner;
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<void>> result;
};

namespace {

int refuse_forked() {
    return ThreadError::keep(
        DTRUN_FORKED, "only the process that made the communicator can use it, no forked child");
}

bool is_forked(const dtrun_comm* comm) {
    return comm != nullptr && !comm->owner.is_this_process();
}

Result<void> check(const dtrun_comm* comm) {
    if (comm == nullptr) return dtrun::fail(Errc::invalid_input, "comm is NULL");
    return {};
}

/// \param parts  of `count` elements each
Result<void> check(int dtype, const void* data, std::size_t count, const char* name,
                   std::size_t parts = 1) {
    if (dtype < 0 || dtype >= static_cast<int>(kDTypes))
        return dtrun::fail(Errc::invalid_input, "there is no dtype {}", dtype);
    if (count > PTRDIFF_MAX / dtrun::collectives::bytes_of(static_cast<DType>(dtype)) / parts)
        return dtrun::fail(Errc::invalid_input, "{} cannot have {} elements", name, count);
    if (data == nullptr && count > 0) return dtrun::fail(Errc::invalid_input, "{} is NULL", name);
    return {};
}

std::size_t ranks_of(const dtrun_comm* comm) {
    return comm != nullptr ? comm->communicator->size() : 1;
}

Result<void> check_apart(const void* in, const void* out, std::size_t count) {
    if (in != out || count == 0) return {};
    return dtrun::fail(Errc::invalid_input, "in and out are one array: give two");
}

/// Limits timeouts to a year, since the largest ones would overflow a clock.
std::chrono::milliseconds span_of(std::int64_t ms) {
    constexpr std::int64_t kYearMs = 365LL * 24 * 3'600'000;
    return std::chrono::milliseconds(ms < 0 ? kYearMs : std::min(ms, kYearMs));
}

Result<void> check_reduce(int reduce) {
    if (reduce >= DTRUN_SUM && reduce <= DTRUN_ADASUM) return {};
    return dtrun::fail(Errc::invalid_input, "there is no reduction {}", reduce);
}

/// The first of several checks that fails.
template <class... Checked>
Result<void> first_failure(const Checked&... checked) {
    Result<void> first;
    ((first = first ? checked : first), ...);
    return first;
}

#define DTRUN_FORMAT(format, c_name, ...) \
    static_assert(static_cast<int>(Format::format) == (c_name), "the ABI's value");
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT

Result<std::optional<Compression>> compression_of(const dtrun_compression* given) {
    if (given == nullptr) return std::nullopt;
    dtrun_compression own{};
    std::memcpy(&own, given, std::min(given->size, sizeof own));
    if (own.format == DTRUN_UNCOMPRESSED) return std::nullopt;
    const FormatRow* const row = find_format(own.format);
    if (row == nullptr)
        return dtrun::fail(Errc::invalid_input, "there is no format {}", own.format);
    Compression compression;
    compression.format = row->format;
    compression.rounding = own.stochastic != 0 ? Rounding::stochastic : Rounding::nearest;
    compression.error = own.error;
    if (own.policy != 0) compression.policy = CompressionPolicy::always;
    return compression;
}

const Compression* pointer(const std::optional<Compression>& compression) {
    return compression ? &*compression : nullptr;
}

DType type_of(int dtype) {
    return static_cast<DType>(dtype);
}

Reduce reduce_of(int reduce) {
    return static_cast<Reduce>(reduce);
}

/// Runs an operation once all earlier ones are done.
/// \param body  Result<void>(Communicator&)
template <class Body>
int operate(dtrun_comm* comm, const Result<void>& checked, Body body) noexcept {
    if (is_forked(comm)) return refuse_forked();
    return guarded([&]() -> Result<void> {
        if (!checked) return checked;
        Communicator& communicator = *comm->communicator;
        const InterpreterLock::Released released(comm->lock);
        const auto mark = communicator.mark(comm->stream.get());
        const auto turn = communicator.work().wait_for_turn();
        communicator.follow(mark);
        return body(communicator);
    });
}

/// Starts an asynchronous operation.
template <class Body>
int begin(dtrun_comm* comm, dtrun_request** request, const Result<void>& checked,
          Body body) noexcept {
    if (is_forked(comm)) return refuse_forked();
    return guarded([&]() -> Result<void> {
        if (request == nullptr) return dtrun::fail(Errc::invalid_input, "request is NULL");
        if (!checked) return checked;
        auto owner = std::make_unique<dtrun_request>();
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

Result<void> hand_out(Result<std::unique_ptr<Communicator>> made, const InterpreterLock& lock,
                      dtrun_comm** comm) {
    if (!made) return std::unexpected(made.error());
    *comm = *made == nullptr ? nullptr : new dtrun_comm{std::move(*made), lock, {}, {}};
    return {};
}

int split(dtrun_comm* parent, dtrun_comm** comm,
          const std::function<Result<std::unique_ptr<Communicator>>(Communicator&)>& how) {
    auto checked = check(parent);
    if (checked && comm == nullptr) checked = dtrun::fail(Errc::invalid_input, "comm is NULL");
    return operate(parent, checked,
                   [&](Communicator& from) { return hand_out(how(from), parent->lock, comm); });
}

}  // namespace

extern "C" {

const char* dtrun_comm_error_text(void) {
    return ThreadError::text();
}

int dtrun_comm_create(dtrun_worker* worker, const dtrun_comm_options* options, dtrun_comm** comm) {
    return guarded([&]() -> Result<void> {
        if (worker == nullptr || comm == nullptr)
            return dtrun::fail(Errc::invalid_input, "worker or comm is NULL");
        dtrun_comm_options given{};
        if (options != nullptr) std::memcpy(&given, options, std::min(options->size, sizeof given));
        CommunicatorOptions own;
        if (given.backend != nullptr) own.backend = given.backend;
        if (given.timeout_ms != 0) own.timeout = span_of(given.timeout_ms);
        if (given.operation_timeout_ms > 0)
            own.operation_timeout = span_of(given.operation_timeout_ms);
        if (given.interfaces != nullptr) own.interfaces = split_names(given.interfaces);
        own.device = given.device_memory != 0;
        own.gpu = given.device_plus_one - 1;
        const InterpreterLock lock{given.unlock, given.lock, given.interrupted};
        if (lock.interrupted != nullptr) own.interrupted = &InterpreterLock::is_interrupted;
        return hand_out(Communicator::create(worker, std::move(own)), lock, comm);
    });
}

int dtrun_comm_split(dtrun_comm* parent, int32_t colour, int32_t key, dtrun_comm** comm) {
    return split(parent, comm, [&](Communicator& from) { return from.split(colour, key); });
}

int dtrun_comm_split_by_host(dtrun_comm* parent, dtrun_comm** comm) {
    return split(parent, comm, [](Communicator& from) { return from.split_by_host(); });
}

void dtrun_comm_free(dtrun_comm* comm) {
    // A forked child does not have its threads, so the destructor would wait for ever.
    if (is_forked(comm)) static_cast<void>(comm->communicator.release());
    delete comm;
}

int dtrun_comm_set_stream(dtrun_comm* comm, void* stream) {
    if (is_forked(comm)) return refuse_forked();
    return guarded([&]() -> Result<void> {
        const auto checked = check(comm);
        if (checked) comm->stream.set(stream);
        return checked;
    });
}

void dtrun_comm_abort(dtrun_comm* comm, const char* why) {
    if (comm == nullptr || is_forked(comm)) return;
    guarded([&]() -> Result<void> {
        comm->communicator->abort(why != nullptr && *why != '\0' ? why : "dtrun_comm_abort()");
        return {};
    });
}

uint32_t dtrun_comm_rank(const dtrun_comm* comm) {
    return comm != nullptr ? comm->communicator->rank() : 0;
}

uint32_t dtrun_comm_size(const dtrun_comm* comm) {
    return comm != nullptr ? comm->communicator->size() : 0;
}

const char* dtrun_comm_backend(const dtrun_comm* comm) {
    return comm != nullptr ? comm->communicator->backend().c_str() : "";
}

const char* dtrun_comm_why(const dtrun_comm* comm) {
    return comm != nullptr ? comm->communicator->why().c_str() : "";
}

const char* dtrun_comm_facts(const dtrun_comm* comm) {
    return comm != nullptr ? comm->communicator->facts().c_str() : "";
}

// ---- operations -----------------------------------------------------------------------------

int dtrun_allreduce(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                    int reduce, const dtrun_compression* compression) {
    const auto how = compression_of(compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in"),
                                 check(dtype, out, count, "out"), check_reduce(reduce)),
                   [&](Communicator& communicator) {
                       return communicator.allreduce(in, out, count, type_of(dtype),
                                                     reduce_of(reduce), pointer(*how));
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
    return operate(
        comm,
        first_failure(check(comm), check(dtype, in, count, "in"),
                      check(dtype, out, needed ? count : 0, "out"), check_reduce(reduce)),
        [&](Communicator& communicator) {
            return communicator.reduce(in, out, count, type_of(dtype), reduce_of(reduce), root);
        });
}

int dtrun_reduce_scatter(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                         int reduce) {
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in", ranks_of(comm)),
                                 check(dtype, out, count, "out"), check_reduce(reduce)),
                   [&](Communicator& communicator) {
                       return communicator.reduce_scatter(in, out, count, type_of(dtype),
                                                          reduce_of(reduce));
                   });
}

int dtrun_reduce_scatter_compressed(dtrun_comm* comm, const void* in, void* out, size_t count,
                                    int dtype, int reduce, const dtrun_compression* compression) {
    const auto how = compression_of(compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in", ranks_of(comm)),
                                 check(dtype, out, count, "out"), check_reduce(reduce)),
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
                                 check(dtype, out, count, "out", ranks_of(comm))),
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
                                 check(dtype, out, count, "out", ranks_of(comm))),
                   [&](Communicator& communicator) {
                       return communicator.allgather(in, out, count, type_of(dtype), pointer(*how));
                   });
}

int dtrun_allgatherv(dtrun_comm* comm, const void* in, void* out, const size_t* counts, int dtype) {
    auto checked = first_failure(check(comm), check(dtype, counts, 1, "counts"));
    std::size_t own = 0, all = 0;
    for (std::uint32_t rank = 0; checked && rank < comm->communicator->size(); ++rank) {
        if (rank == comm->communicator->rank()) own = counts[rank];
        checked = check(dtype, counts, counts[rank], "a rank's part");
        if (checked) checked = check(dtype, counts, all += counts[rank], "out");
    }
    checked = first_failure(checked, check(dtype, in, own, "in"), check(dtype, out, all, "out"));
    return operate(comm, checked, [&](Communicator& communicator) {
        return communicator.allgatherv(in, out, {counts, communicator.size()}, type_of(dtype));
    });
}

int dtrun_gather(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                 uint32_t root) {
    const bool needed = comm != nullptr && comm->communicator->rank() == root;
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in"),
                                 check(dtype, out, needed ? count : 0, "out", ranks_of(comm))),
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
                      check(dtype, out, count, "out")),
        [&](Communicator& communicator) {
            return communicator.scatter(in, out, count, type_of(dtype), root);
        });
}

int dtrun_alltoall(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype) {
    return operate(comm,
                   first_failure(check(comm), check(dtype, in, count, "in", ranks_of(comm)),
                                 check(dtype, out, count, "out"), check_apart(in, out, count)),
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
                                 check_apart(in, out, std::min(in_count, out_count))),
                   [&](Communicator& communicator) {
                       return communicator.sendrecv(out, out_count, to, in, in_count, from,
                                                    type_of(dtype));
                   });
}

int dtrun_comm_barrier(dtrun_comm* comm) {
    return operate(comm, check(comm),
                   [](Communicator& communicator) { return communicator.barrier(); });
}

// ---- asynchronous ---------------------------------------------------------------------------

int dtrun_allreduce_start(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                          int reduce, const dtrun_compression* compression,
                          dtrun_request** request) {
    const auto how = compression_of(compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    return begin(comm, request,
                 first_failure(check(comm), check(dtype, in, count, "in"),
                               check(dtype, out, count, "out"), check_reduce(reduce)),
                 [=, how = *how](Communicator& communicator) {
                     return communicator.allreduce(in, out, count, type_of(dtype),
                                                   reduce_of(reduce), pointer(how));
                 });
}

int dtrun_allgather_start(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                          dtrun_request** request) {
    return begin(comm, request,
                 first_failure(check(comm), check(dtype, in, count, "in"),
                               check(dtype, out, count, "out", ranks_of(comm))),
                 [=](Communicator& communicator) {
                     return communicator.allgather(in, out, count, type_of(dtype));
                 });
}

int dtrun_broadcast_start(dtrun_comm* comm, void* data, size_t count, int dtype, uint32_t root,
                          dtrun_request** request) {
    return begin(comm, request, first_failure(check(comm), check(dtype, data, count, "data")),
                 [=](Communicator& communicator) {
                     return communicator.broadcast(data, count, type_of(dtype), root);
                 });
}

int dtrun_reduce_scatter_start(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                               int reduce, dtrun_request** request) {
    return begin(comm, request,
                 first_failure(check(comm), check(dtype, in, count, "in", ranks_of(comm)),
                               check(dtype, out, count, "out"), check_reduce(reduce)),
                 [=](Communicator& communicator) {
                     return communicator.reduce_scatter(in, out, count, type_of(dtype),
                                                        reduce_of(reduce));
                 });
}

int dtrun_request_wait(dtrun_request* request, int64_t timeout_ms, int* done) {
    if (request == nullptr || (done == nullptr && timeout_ms >= 0))
        return ThreadError::keep(DTRUN_INVALID, "request or done is NULL");
    if (!request->owner.is_this_process()) {
        if (done != nullptr) *done = 1;
        return refuse_forked();
    }
    std::unique_lock lock(request->mutex);
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
