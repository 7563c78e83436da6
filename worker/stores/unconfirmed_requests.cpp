#include "worker/stores/unconfirmed_requests.h"

#include <algorithm>
#include <utility>

namespace dtrun::stores {
namespace {

constexpr std::size_t kRequestsMax = 48;
constexpr std::size_t kBytesMax = 4u << 20;

}  // namespace

UnconfirmedRequests::UnconfirmedRequests(JobStore& store, Confirmed confirmed)
    : store_(store), confirmed_(std::move(confirmed)) {}

UnconfirmedRequests::~UnconfirmedRequests() {
    for (const Unconfirmed& request : requests_) store_.forget(request.ticket);
}

bool UnconfirmedRequests::is_full() const {
    return requests_.size() >= kRequestsMax || bytes_ >= kBytesMax;
}

void UnconfirmedRequests::ask(const StoreRequest& request, std::size_t bytes) {
    const std::uint64_t serial = ++last_serial_;
    at_once_ = 0;
    const JobStore::Ticket ticket =
        store_.ask(request, [this, serial](const StoreReply& reply) { answered(serial, reply); });
    if (at_once_ == serial) return;
    requests_.push_back({serial, ticket, bytes});
    bytes_ += bytes;
}

void UnconfirmedRequests::answered(std::uint64_t serial, const StoreReply& reply) {
    const bool was_full = is_full();
    const auto at = std::ranges::find(requests_, serial, &Unconfirmed::serial);
    if (at == requests_.end()) {
        at_once_ = serial;
    } else {
        bytes_ -= at->bytes;
        requests_.erase(at);
    }
    confirmed_(reply, was_full);
}

}  // namespace dtrun::stores
