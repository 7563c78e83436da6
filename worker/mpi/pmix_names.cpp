#include "worker/mpi/pmix_names.h"

#include "worker/mpi/pmix_abi.h"

#include <utility>

namespace dtrun::mpi {
namespace {

std::string stored(const std::string& key) {
    return "dtrun/pmix/name/" + key;
}

/// The results of a reply, to be read.
PackReader results_of(const StoreReply& reply) {
    PackReader reader(reply.results);
    reader.array();
    return reader;
}

pmix::Status failure(Status status) {
    switch (status) {
        case Status::not_found:
            return pmix::kErrorNotFound;
        case Status::timed_out:
            return pmix::kErrorTimeout;
        default:
            return pmix::kErrorUnreachable;
    }
}

}  // namespace

void PmixNames::publish(const PmixPublish& request) {
    const auto job = std::make_shared<Job>(request.id, request.items.size());
    for (const PmixItem& item : request.items) {
        const std::string key = stored(item.key);
        const Bytes value = pmix_encode_item(item);
        StoreRequest store_request{.op = Op::compare_set, .keys = {key}, .values = {value}};
        queries_.ask(store_request, [this, job, item](const StoreReply& reply) {
            const bool set = reply.status == Status::ok && results_of(reply).boolean();
            if (set) published_[item.rank].insert(item.key);
            if (reply.status != Status::ok)
                job->answer.status = failure(reply.status);
            else if (!set)
                job->answer.status = pmix::kErrorDuplicateKey;
            if (--job->open == 0) end(*job);
        });
    }
}

void PmixNames::end(const Job& job) {
    send_(pmix_encode(PmixAnswer{job.answer.id, job.answer.status, {}}));
}

void PmixNames::lookup(const PmixLookup& request) {
    const auto job = std::make_shared<Job>(request.id, request.keys.size());
    for (const std::string& name : request.keys) look_up(name, request.timeout_ms, job);
}

void PmixNames::look_up(const std::string& name, std::uint64_t timeout_ms, const JobPtr& job) {
    const std::string key = stored(name);
    StoreRequest request{.op = Op::get, .keys = {key}};
    request.timeout_ms = timeout_ms;
    queries_.ask(request, [this, name, job](const StoreReply& reply) {
        found(name, reply, *job);
        if (--job->open > 0) return;
        // What there is: who has asked sees what is missing.
        if (!job->answer.items.empty()) job->answer.status = pmix::kSuccess;
        send_(pmix_encode(job->answer));
    });
}

void PmixNames::found(const std::string& name, const StoreReply& reply, Job& job) {
    if (reply.status != Status::ok) {
        job.answer.status = failure(reply.status);
        return;
    }
    auto item = pmix_decode_item(results_of(reply).bytes());
    if (!item) {
        job.answer.status = pmix::kErrorNotFound;
        return;
    }
    if (item->once) {
        const std::string key = stored(name);
        queries_.ask({.op = Op::erase, .keys = {key}}, [](const StoreReply&) {});
    }
    job.answer.items.push_back(std::move(*item));
}

void PmixNames::unpublish(const PmixUnpublish& request) {
    std::set<std::string>& ours = published_[request.rank];
    std::set<std::string> names(request.keys.begin(), request.keys.end());
    if (names.empty()) names = std::exchange(ours, {});
    const auto job = std::make_shared<Job>(request.id, names.size());
    if (names.empty()) return send_(pmix_encode(PmixAnswer{request.id, pmix::kSuccess, {}}));
    for (const std::string& name : names) {
        ours.erase(name);
        const std::string key = stored(name);
        queries_.ask({.op = Op::erase, .keys = {key}}, [this, job](const StoreReply& reply) {
            if (reply.status != Status::ok)
                job->answer.status = failure(reply.status);
            else if (!results_of(reply).boolean())
                job->answer.status = pmix::kErrorNotFound;
            if (--job->open == 0) end(*job);
        });
    }
}

}  // namespace dtrun::mpi
