// The C interface of <dtrun_coordinator.h>: arguments are checked, no exception leaves it, and what
// has failed becomes a code and a text.
#include "base/sized_struct.h"
#include "collectives/api/c_errors.h"
#include "collectives/api/handles.h"
#include "collectives/codec/format_table.h"
#include "collectives/coordinator/coordinator.h"
#include "collectives/include/dtrun_coordinator.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

using dtrun::Errc;
using dtrun::Result;
using namespace dtrun::collectives;

struct dtrun_coordinator {
    std::unique_ptr<Coordinator> coordinator;
    pid_t process = ::getpid();  ///< a forked child has neither its thread nor its connections
};

struct dtrun_outcome {
    Outcome outcome;
};

namespace {

/// Body of a function: Result<void>().
template <class Body>
int guarded(const dtrun_coordinator* coordinator, Body body) noexcept {
    if (coordinator == nullptr) return ThreadError::keep(DTRUN_INVALID, "coordinator is NULL");
    if (coordinator->process != ::getpid())
        return ThreadError::keep(DTRUN_FORKED,
                                 "only the process that made the coordinator can use it");
    return dtrun::collectives::guarded(body);
}

Result<TensorSpec> spec_of(const dtrun_tensor& given) {
    if (given.dtype < 0 || given.dtype >= static_cast<int>(kDTypesMoved))
        return dtrun::fail(Errc::invalid_input, "there is no dtype {}", given.dtype);
    TensorSpec spec;
    spec.type = static_cast<DType>(given.dtype);
    if (given.dimensions > 0) spec.shape.assign(given.shape, given.shape + given.dimensions);
    if (std::ranges::any_of(spec.shape, [](std::int64_t length) { return length < 0; }))
        return dtrun::fail(Errc::invalid_input, "a dimension is negative");
    return spec;
}

/// How many rows go to each rank.
Result<std::vector<std::int64_t>> splits_of(const dtrun_task& task, std::int64_t rows,
                                            std::uint32_t size) {
    if (task.splits == nullptr) {
        if (rows % size == 0) return std::vector<std::int64_t>(size, rows / size);
        return dtrun::fail(Errc::invalid_input,
                           "{} rows cannot be split evenly over {} ranks: give splits", rows, size);
    }
    std::vector<std::int64_t> splits(task.splits, task.splits + size);
    const auto sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
    if (sum == rows && std::ranges::none_of(splits, [](std::int64_t s) { return s < 0; }))
        return splits;
    return dtrun::fail(Errc::invalid_input, "splits add up to {} rows, the tensor has {}", sum,
                       rows);
}

Result<void> check(const Request& request, std::uint32_t size) {
    const RequestKind operation = request.operation;
    const bool has_data = operation != RequestKind::barrier && operation != RequestKind::join;
    const auto refuse = [](std::string_view why) {
        return dtrun::fail(Errc::invalid_input, "{}", why);
    };
    if (has_data == request.tensors.empty())
        return refuse(has_data ? "there are no tensors" : "barrier and join have no tensors");
    if (operation == RequestKind::alltoall && request.tensors.size() > 1)
        return refuse("all-to-all is for one tensor");
    if (request.root >= size)
        return dtrun::fail(Errc::invalid_input, "there is no rank {} among {}", request.root, size);
    const bool by_rows = has_own_rows(operation) || operation == RequestKind::reduce_scatter;
    for (const TensorSpec& tensor : request.tensors) {
        if (by_rows && tensor.shape.empty())
            return dtrun::fail(Errc::invalid_input,
                               "{} needs a tensor with at least one dimension, not a scalar",
                               name_of(operation));
        if (is_reduction(operation) && !can_reduce(tensor.type, request.reduce))
            return dtrun::fail(Errc::invalid_input, "elements of type {} are not reduced with {}",
                               name_of(tensor.type), name_of(request.reduce));
        if (is_only_moved(tensor.type) && (request.prescale != 1 || request.postscale != 1))
            return dtrun::fail(Errc::invalid_input, "elements of type {} cannot be multiplied",
                               name_of(tensor.type));
        if (request.reduce == Reduce::adasum &&
            (operation != RequestKind::allreduce || !is_float(tensor.type)))
            return refuse("Adasum is for allreduce of floating point");
        if (request.format != 0 &&
            (operation != RequestKind::allreduce || tensor.type != DType::f32 ||
             (request.reduce != Reduce::sum && request.reduce != Reduce::average)))
            return refuse("only allreduce of f32 with sum or average can be compressed");
    }
    return {};
}

Result<void> add_tensors(const dtrun_task& given, std::uint32_t size, Task& task) {
    for (std::size_t i = 0; i < given.number; ++i) {
        const dtrun_tensor& tensor = given.tensors[i];
        auto spec = spec_of(tensor);
        if (!spec) return std::unexpected(spec.error());
        task.buffers.push_back({tensor.in, tensor.out, tensor.error});
        if (has_own_rows(task.request.operation) && !spec->shape.empty()) {
            const std::int64_t rows = spec->shape.front();
            if (task.request.operation == RequestKind::alltoall) {
                auto splits = splits_of(given, rows, size);
                if (!splits) return std::unexpected(splits.error());
                task.extras = std::move(*splits);
            } else {
                task.extras.push_back(rows);
            }
            spec->shape.front() = Request::kOwnRows;
        }
        task.request.tensors.push_back(std::move(*spec));
    }
    return {};
}

Result<Task> task_of(const dtrun_task& given, std::uint32_t size) {
    if (given.name == nullptr || *given.name == '\0')
        return dtrun::fail(Errc::invalid_input, "the operation has no name");
    if (given.operation < 0 || given.operation >= static_cast<int>(kRequestKinds))
        return dtrun::fail(Errc::invalid_input, "there is no operation {}", given.operation);
    if (given.reduce < DTRUN_SUM || given.reduce > DTRUN_ADASUM)
        return dtrun::fail(Errc::invalid_input, "there is no reduction {}", given.reduce);
    if (given.format != 0 && find_format(given.format) == nullptr)
        return dtrun::fail(Errc::invalid_input, "there is no format {}", given.format);
    Task task;
    task.request.name = given.name;
    task.request.operation = static_cast<RequestKind>(given.operation);
    task.request.reduce = static_cast<Reduce>(given.reduce);
    task.request.root = given.root;
    const auto is_given = [](double factor) { return factor != 0 || std::signbit(factor); };
    if (is_given(given.prescale)) task.request.prescale = given.prescale;
    if (is_given(given.postscale)) task.request.postscale = given.postscale;
    task.request.format = given.format;
    task.request.stochastic = given.format != 0 && given.stochastic != 0;
    if (auto done = add_tensors(given, size, task); !done) return std::unexpected(done.error());
    if (auto done = check(task.request, size); !done) return std::unexpected(done.error());
    task.encoded = encode(task.request);
    return task;
}

/// Limits timeouts to a year, since the largest ones would overflow a clock.
std::chrono::milliseconds span_of(std::int64_t ms) {
    constexpr std::int64_t kYearMs = 365LL * 24 * 3'600'000;
    return std::chrono::milliseconds(ms < 0 ? kYearMs : std::min(ms, kYearMs));
}

}  // namespace

extern "C" {

const char* dtrun_coordinator_error_text(void) {
    return ThreadError::text();
}

int dtrun_coordinator_create(dtrun_comm* comm, const dtrun_coordinator_options* options,
                             dtrun_coordinator** coordinator) {
    if (comm == nullptr || coordinator == nullptr)
        return ThreadError::keep(DTRUN_INVALID, "comm or coordinator is NULL");
    dtrun_coordinator_options given{};
    if (options != nullptr) {
        const auto read = dtrun::read_sized(*options, offsetof(dtrun_coordinator_options, delay_us),
                                            "dtrun_coordinator_options");
        if (!read) return ThreadError::keep(DTRUN_INVALID, read.error().message);
        given = *read;
    }
    CoordinatorOptions own;
    if (given.fused_bytes != 0) own.fused_bytes = given.fused_bytes;
    if (given.delay_us > 0) own.delay = std::chrono::microseconds(given.delay_us);
    if (given.stall_warning_ms != 0)
        own.stall.warning = given.stall_warning_ms < 0 ? std::chrono::milliseconds(0)
                                                       : span_of(given.stall_warning_ms);
    if (given.stall_shutdown_ms > 0) own.stall.shutdown = span_of(given.stall_shutdown_ms);
    if (given.ranks != nullptr) own.names.assign(given.ranks, given.ranks + dtrun_comm_size(comm));
    own.tell_stall = [communicator = comm->communicator.get()](const auto& what, auto waited) {
        communicator->tell_stall(what, waited);
    };
    try {
        auto made = std::make_unique<dtrun_coordinator>();
        comm->communicator->leave_stalls();
        forget_interpreter(comm);  // it is used by a thread of our own from now on
        made->coordinator = std::make_unique<Coordinator>(OwnedComm(comm), own);
        *coordinator = made.release();
        return DTRUN_OK;
    } catch (const std::exception& error) {
        return ThreadError::keep(DTRUN_INTERNAL, error.what());
    }
}

void dtrun_coordinator_free(dtrun_coordinator* coordinator) {
    if (coordinator == nullptr) return;
    if (coordinator->process != ::getpid()) static_cast<void>(coordinator->coordinator.release());
    delete coordinator;
}

int dtrun_coordinator_submit(dtrun_coordinator* coordinator, const dtrun_task* task,
                             uint64_t* handle) {
    return guarded(coordinator, [&]() -> Result<void> {
        if (task == nullptr || handle == nullptr)
            return dtrun::fail(Errc::invalid_input, "task or handle is NULL");
        const auto given = dtrun::read_sized(*task, offsetof(dtrun_task, splits), "dtrun_task");
        if (!given) return std::unexpected(given.error());
        auto own = task_of(*given, coordinator->coordinator->size());
        if (!own) return std::unexpected(own.error());
        const auto submitted = coordinator->coordinator->submit(std::move(*own));
        if (!submitted) return std::unexpected(submitted.error());
        *handle = *submitted;
        return {};
    });
}

int dtrun_coordinator_poll(dtrun_coordinator* coordinator, uint64_t handle) {
    return coordinator == nullptr || coordinator->process != ::getpid() ||
           coordinator->coordinator->poll(handle);
}

int dtrun_coordinator_wait(dtrun_coordinator* coordinator, uint64_t handle, int64_t timeout_ms,
                           int* done, dtrun_outcome** outcome) {
    // Other threads may look at it meanwhile.
    bool is_done = true;
    if (outcome != nullptr) *outcome = nullptr;
    const int code = guarded(coordinator, [&]() -> Result<void> {
        auto result = coordinator->coordinator->wait(handle, span_of(timeout_ms));
        if (!result) {
            is_done = false;
            return dtrun::fail(Errc::timed_out, "the operation goes on");
        }
        if (!*result) return std::unexpected(result->error());
        if (outcome != nullptr) *outcome = new dtrun_outcome{std::move(**result)};
        return {};
    });
    if (done != nullptr) *done = is_done ? 1 : 0;
    return code;
}

void* dtrun_outcome_data(dtrun_outcome* outcome, size_t index) {
    return index < outcome->outcome.data.size() ? outcome->outcome.data[index].get() : nullptr;
}

int64_t dtrun_outcome_rows(dtrun_outcome* outcome, size_t index, uint32_t rank) {
    const auto& rows = outcome->outcome.rows;
    return index < rows.size() && rank < rows[index].size() ? rows[index][rank] : 0;
}

uint32_t dtrun_outcome_last_joined(dtrun_outcome* outcome) {
    return outcome->outcome.last_joined;
}

void dtrun_outcome_free(dtrun_outcome* outcome) {
    delete outcome;
}

}  // extern "C"
