// The C interface: arguments are checked, no exception leaves it, and what has failed becomes a code
// and a text. Here are communicators; operations are in c_operations.cpp, and those that are started
// in c_requests.cpp.
#include "base/sized_struct.h"
#include "collectives/api/c_arguments.h"
#include "collectives/api/c_calls.h"
#include "collectives/communicator/host_address.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>

using dtrun::Errc;
using dtrun::Result;
using namespace dtrun::collectives;

void dtrun::collectives::forget_interpreter(dtrun_comm* comm) {
    comm->lock = {};
}

namespace {

/// Which ranks make a communicator; of all ranks none are named. Errc: invalid_input
Result<NamedRanks> named_ranks(const dtrun_comm_options& given) {
    NamedRanks named;
    if (given.name != nullptr) named.name = given.name;
    if (given.ranks == nullptr && given.rank_count == 0 && named.name.empty()) return named;
    if (given.ranks == nullptr || given.rank_count == 0 || named.name.empty())
        return dtrun::fail(Errc::invalid_input,
                           "a communicator of some ranks needs ranks and a name: both or neither");
    named.ranks.assign(given.ranks, given.ranks + given.rank_count);
    return named;
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
        if (options != nullptr) {
            const auto read = dtrun::read_sized(*options, offsetof(dtrun_comm_options, interfaces),
                                                "dtrun_comm_options");
            if (!read) return std::unexpected(read.error());
            given = *read;
        }
        CommunicatorOptions own;
        if (given.backend != nullptr) own.backend = given.backend;
        if (given.timeout_ms != 0) own.timeout = span_of(given.timeout_ms);
        if (given.operation_timeout_ms > 0)
            own.operation_timeout = span_of(given.operation_timeout_ms);
        if (given.stall_ms != 0) own.stall_limit = span_of(std::max<int64_t>(given.stall_ms, 0));
        if (given.interfaces != nullptr) own.interfaces = split_names(given.interfaces);
        own.device = given.device_memory != 0;
        own.gpu = given.device_plus_one - 1;
        const InterpreterLock lock{given.unlock, given.lock, given.interrupted};
        if (lock.interrupted != nullptr) own.interrupted = &InterpreterLock::is_interrupted;
        auto named = named_ranks(given);
        if (!named) return std::unexpected(named.error());
        return hand_out(Communicator::create(worker, std::move(own), std::move(*named)), lock,
                        comm);
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
    Inside* const inside = comm != nullptr ? Inside::of(comm) : nullptr;
    if (inside == nullptr || is_forked(comm)) {
        delete comm;
        return;
    }
    inside->free_later();
    dtrun_comm_abort(comm, "the communicator was freed in the middle of an operation");
}

int dtrun_comm_set_stream(dtrun_comm* comm, void* stream) {
    if (is_forked(comm)) return refuse_forked();
    return guarded([&]() -> Result<void> {
        const auto checked = check(comm);
        if (checked) comm->stream.set(stream);
        return checked;
    });
}

int dtrun_comm_set_operation_timeout(dtrun_comm* comm, int64_t timeout_ms) {
    if (is_forked(comm)) return refuse_forked();
    return guarded([&]() -> Result<void> {
        const auto checked = check(comm);
        if (checked)
            comm->communicator->set_operation_timeout(span_of(std::max<int64_t>(timeout_ms, 0)));
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

}  // extern "C"
